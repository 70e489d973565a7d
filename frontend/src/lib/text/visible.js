/**
 * Makes text from outside safe to show. Invisible characters, and those that reorder their surroundings, are shown as
 * code points. dom.js applies this to every text node and every label.
 */

/**
 * Controls except tab and newline, soft hyphen, zero-width and direction marks, line separators, tags, lone surrogates,
 * and variation selectors that choose no picture, because letters can be smuggled in them.
 */
const HIDDEN = new RegExp(
  [
    String.raw`[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e]`,
    String.raw`[\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff]`,
    String.raw`[\u{1d173}-\u{1d17a}]`,
    String.raw`[\u{e0000}-\u{e01ef}]`,
    String.raw`[\ufe00-\ufe0d]`,
    String.raw`(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]`,
    String.raw`\p{Cs}`,
  ].join('|'),
  'gu',
);

/** @typedef {{text: string, isCode: boolean}} Piece */

/** Returns the code point of a character, such as `U+202E`. @param {string} character */
export const formatCodePoint = (character) =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;

/**
 * Splits text into pieces that can be shown unchanged and code points of hidden characters.
 * @param {string} text
 * @returns {Piece[]}
 */
export function splitVisible(text) {
  const segments = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) segments.push({ text: text.slice(from, match.index), isCode: false });
    segments.push({ text: formatCodePoint(match[0]), isCode: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) segments.push({ text: text.slice(from), isCode: false });
  return segments;
}

/** Returns the visible text as one string, with hidden characters as `‹U+200B›`. @param {string} text */
export const makeVisible = (text) => text.replace(HIDDEN, (character) => `‹${formatCodePoint(character)}›`);
