/** Text that a policy wrote, in parts, and the colours of its tokens. */
import { visible } from './visible.js';

/** Text on one line: white space folded. @param {string} text */
export const oneLine = (text) => visible(text).replace(/\s+/g, ' ').trim();

/** Start of a text of at most `most` UTF-16 units, never half a character. @param {string} text @param {number} most */
export function startOf(text, most) {
  if (text.length <= most) return text;
  const end = /[\ud800-\udbff]/.test(text[most - 1]) ? most - 1 : most;
  return text.slice(0, end);
}

/** How many tokens fit into `most` characters. @param {string[]} tokens @param {number} most */
export function tokensWithin(tokens, most) {
  let length = 0;
  const over = tokens.findIndex((token) => {
    length += token.length;
    return length > most;
  });
  return over < 0 ? tokens.length : over;
}

export const LEVELS = 8;

/**
 * @typedef {{label: string, unit: string, full: number, weight: (value: number) => number, low: string, high:
 *   string}} Colouring
 */

/**
 * What tokens can be coloured by. `weight` is 0 for what needs no attention and grows with it; `full` is the weight
 * that gets the strongest colour, fixed so that colours mean the same in every completion.
 * @type {Record<'logprob'|'entropy', Colouring>}
 */
export const COLOURINGS = {
  logprob: {
    label: 'log-prob',
    unit: 'nats',
    full: 5,
    weight: (value) => -value,
    low: '0 · certain',
    high: '≤ −5 · surprising',
  },
  entropy: {
    label: 'entropy',
    unit: 'nats',
    full: 2.5,
    weight: (value) => value,
    low: '0 · no choice',
    high: '≥ 2.5 · open',
  },
};

/**
 * Colour level 0..LEVELS of a token's value; `null` where there is none (masked, not recorded).
 * @param {'logprob'|'entropy'} by
 * @param {number | string | null | undefined} value
 */
export function levelOf(by, value) {
  if (value === '-Infinity') return by === 'logprob' ? LEVELS : null;
  if (typeof value !== 'number' || Number.isNaN(value)) return null;
  const { full, weight } = COLOURINGS[by];
  return Math.round(Math.min(1, Math.max(0, weight(value) / full)) * LEVELS);
}

/**
 * A value of a token; masked tokens have none, whatever is stored.
 * @param {(number | string)[] | undefined} array
 * @param {number[] | boolean[] | undefined} mask
 * @param {number} index
 */
export const valueAt = (array, mask, index) => (mask && !mask[index] ? null : (array?.[index] ?? null));

/** Probability from its logarithm, readable down to the smallest. @param {number} logprob */
export function probabilityText(logprob) {
  const probability = Math.exp(logprob);
  if (probability >= 0.9995) return probability === 1 ? '100 %' : '> 99.9 %';
  if (probability >= 0.001) return `${(probability * 100).toFixed(1)} %`;
  return probability.toExponential(1).replace('-', '−');
}
