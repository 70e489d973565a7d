/** Highlights the words of a search on the help page that it opened. */

const MAX_MARKED = 2000;

/** Returns the words in the address, in lower case. */
function readWords() {
  const address = new URLSearchParams(location.search);
  return (address.get('find') ?? address.get('query') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
}

/** Highlights them in an element without changing it, if the browser supports it. @param {Element} element */
export function highlightWords(element) {
  const words = readWords();
  if (!words.length || !('highlights' in CSS)) return;
  const highlight = new Highlight();
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && highlight.size < MAX_MARKED) {
    const node = /** @type {Text} */ (texts.currentNode);
    for (const word of words) for (const range of findRanges(node, word)) highlight.add(range);
  }
  CSS.highlights.set('found', highlight);
}

/** @param {Text} node @param {string} word */
function* findRanges(node, word) {
  const text = node.data.toLowerCase();
  for (let index = text.indexOf(word); index >= 0; index = text.indexOf(word, index + word.length)) {
    if (index + word.length > node.length) return; // lower case can be longer
    const range = new Range();
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    yield range;
  }
}
