/**
 * Text from outside, made safe to look at: what would be invisible, or would reorder its surroundings, is shown as
 * its code point. dom.js passes every text node and every label through here.
 */

/**
 * Controls but tab and newline, soft hyphen, zero-width and direction marks, line separators, tags, lone surrogates,
 * and variation selectors that choose no picture: letters can be smuggled in them.
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

/** `U+202E` for a character. @param {string} character */
export const codePoint = (character) =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;

/**
 * Splits text into what can be shown as it is and code points of what cannot.
 * @param {string} text
 * @returns {Piece[]}
 */
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

/** Return the visible text as one string, with hidden characters as `‹U+200B›`. @param {string} text */
export const visible = (text) => text.replace(HIDDEN, (character) => `‹${codePoint(character)}›`);
