/** The difference of two texts by words: Myers' greedy algorithm (Algorithmica 1, 1986). */

/** Maximum number of changed words, because time and memory grow with their square. */
export const MAX_CHANGES = 600;

/** @typedef {{kind: 'same' | 'old' | 'new', text: string}} Part */

/** Returns the words and the white space between them. @param {string} text @returns {string[]} */
const splitWords = (text) => text.split(/(\s+)/).filter(Boolean);

/**
 * Returns the parts of two texts in order: `same` and `old` form the first text, `same` and `new` the second. Returns
 * null if they differ in more than `maxChanges` words.
 * @param {string} oldText @param {string} newText @param {number} [maxChanges]
 * @returns {Part[] | null}
 */
export function diffWords(oldText, newText, maxChanges = MAX_CHANGES) {
  const [oldWords, newWords] = [splitWords(oldText), splitWords(newText)];
  let start = 0;
  while (start < oldWords.length && start < newWords.length && oldWords[start] === newWords[start]) start += 1;
  let end = 0;
  while (
    end < oldWords.length - start &&
    end < newWords.length - start &&
    oldWords[oldWords.length - 1 - end] === newWords[newWords.length - 1 - end]
  )
    end += 1;
  const middle = findChanges(
    oldWords.slice(start, oldWords.length - end),
    newWords.slice(start, newWords.length - end),
    maxChanges,
  );
  if (!middle) return null;
  const markUnchanged = (/** @type {string[]} */ texts) =>
    texts.map((text) => /** @type {Part} */ ({ kind: 'same', text }));
  return joinParts([
    ...markUnchanged(oldWords.slice(0, start)),
    ...middle,
    ...markUnchanged(oldWords.slice(oldWords.length - end)),
  ]);
}

/** @param {string[]} a @param {string[]} b @param {number} maxChanges @returns {Part[] | null} */
function findChanges(a, b, maxChanges) {
  const limit = Math.min(maxChanges, a.length + b.length);
  /** Furthest position in `a` on each diagonal. @type {Map<number, number>} */
  let reach = new Map([[1, 0]]);
  /** @type {Map<number, number>[]} */
  const trace = [];
  for (let d = 0; d <= limit; d += 1) {
    trace.push(reach);
    reach = new Map(reach);
    for (let k = -d; k <= d; k += 2) {
      let x = isDown(reach, k, d) ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkBackwards(trace, a, b);
    }
  }
  return null;
}

/** @param {Map<number, number>} reach @param {number} k @param {number} d */
const isDown = (reach, k, d) => k === -d || (k !== d && (reach.get(k - 1) ?? 0) < (reach.get(k + 1) ?? 0));

/** @param {Map<number, number>[]} trace @param {string[]} a @param {string[]} b */
function walkBackwards(trace, a, b) {
  /** @type {Part[]} */
  const parts = [];
  let [x, y] = [a.length, b.length];
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const k = isDown(trace[d], x - y, d) ? x - y + 1 : x - y - 1;
    const from = d === 0 ? 0 : (trace[d].get(k) ?? 0);
    const to = d === 0 ? 0 : from - k;
    while (x > from && y > to) {
      x -= 1;
      y -= 1;
      parts.push({ kind: 'same', text: a[x] });
    }
    if (d === 0) break;
    if (x > from) parts.push({ kind: 'old', text: a[x - 1] });
    else parts.push({ kind: 'new', text: b[y - 1] });
    [x, y] = [from, to];
  }
  return parts.reverse();
}

/** Returns the parts with neighbours of the same kind joined. @param {Part[]} parts @returns {Part[]} */
function joinParts(parts) {
  /** @type {Part[]} */
  const mergedParts = [];
  for (const { kind, text } of parts) {
    const last = mergedParts[mergedParts.length - 1];
    if (last?.kind === kind) last.text += text;
    else mergedParts.push({ kind, text });
  }
  return mergedParts;
}
