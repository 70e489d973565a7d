/** Highlights the words of a search on the help page that it opened. */

const MAX_MARKED = 2000;

/** Returns the words in the address, in lower case. */
function wordsAsked() {
  const address = new URLSearchParams(location.search);
  return (address.get('find') ?? address.get('query') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
}

/** Highlights them in an element without changing it, if the browser supports it. @param {Element} element */
export function highlightWords(element) {
  const words = wordsAsked();
  if (!words.length || !('highlights' in CSS)) return;
  const marked = new Highlight();
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && marked.size < MAX_MARKED) {
    const node = /** @type {Text} */ (texts.currentNode);
    for (const word of words) for (const range of rangesOf(node, word)) marked.add(range);
  }
  CSS.highlights.set('found', marked);
}

/** @param {Text} node @param {string} word */
function* rangesOf(node, word) {
  const text = node.data.toLowerCase();
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
    if (at + word.length > node.length) return; // lower case can be longer
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, at + word.length);
    yield range;
  }
}
