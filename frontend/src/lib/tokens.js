/**
 * Text that a policy wrote, made safe to look at, and the colours of its tokens. The text is hostile: what would be
 * invisible or would reorder its surroundings is shown as its code point.
 */

/** Controls but tab and newline, soft hyphen, zero-width and direction marks, line separators, tags, lone surrogates. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Cs}/gu;

/** @typedef {{text: string, isCode: boolean}} Piece */

/** `U+202E` for a character. @param {string} character */
export const codePoint = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** Splits text into what can be shown as it is and code points of what cannot. @param {string} text @returns {Piece[]} */
export function visiblePieces(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), isCode: false });
    pieces.push({ text: codePoint(match[0]), isCode: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), isCode: false });
  return pieces;
}

/** The same as one string, for titles and lists: hidden characters as `‹U+200B›`, white space folded. @param {string} text */
export const oneLine = (text) => visiblePieces(text).map((piece) => (piece.isCode ? `‹${piece.text}›` : piece.text)).join('').replace(/\s+/g, ' ').trim();

/** Start of a text of at most `most` UTF-16 units, never half a character. @param {string} text @param {number} most */
export function startOf(text, most) {
  if (text.length <= most) return text;
  const end = /[\ud800-\udbff]/.test(text[most - 1]) ? most - 1 : most;
  return text.slice(0, end);
}

/** How many tokens fit into `most` characters. @param {string[]} tokens @param {number} most */
export function tokensWithin(tokens, most) {
  let length = 0;
  const over = tokens.findIndex((token) => (length += token.length) > most);
  return over < 0 ? tokens.length : over;
}

export const LEVELS = 8;

/**
 * What tokens can be coloured by. `weight` is 0 for what needs no attention and grows with it; `full` is the weight
 * that gets the strongest colour, fixed so that colours mean the same in every completion.
 */
export const COLOURINGS = {
  logprob: { label: 'log-prob', unit: 'nats', full: 5, weight: (value) => -value, low: '0 · certain', high: '≤ −5 · surprising' },
  entropy: { label: 'entropy', unit: 'nats', full: 2.5, weight: (value) => value, low: '0 · no choice', high: '≥ 2.5 · open' },
};

/** Colour level 0..LEVELS of a token's value; `null` where there is none (masked, not recorded). @param {'logprob'|'entropy'} by @param {number | null | undefined} value */
export function levelOf(by, value) {
  if (value === '-Infinity') return by === 'logprob' ? LEVELS : null;
  if (typeof value !== 'number' || Number.isNaN(value)) return null;
  const { full, weight } = COLOURINGS[by];
  return Math.round(Math.min(1, Math.max(0, weight(value) / full)) * LEVELS);
}

/** A value of a token; masked tokens have none, whatever is stored. @param {number[] | undefined} array @param {number[] | boolean[] | undefined} mask @param {number} index */
export const valueAt = (array, mask, index) => (mask && !mask[index] ? null : array?.[index] ?? null);

/** Probability from its logarithm, readable down to the smallest. @param {number} logprob */
export function probabilityText(logprob) {
  const probability = Math.exp(logprob);
  if (probability >= 0.9995) return probability === 1 ? '100 %' : '> 99.9 %';
  if (probability >= 0.001) return `${(probability * 100).toFixed(1)} %`;
  return probability.toExponential(1).replace('-', '−');
}
