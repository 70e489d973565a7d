/** Text that a policy wrote, in parts, and the colours of its tokens. */
import { visible } from './visible.js';
import { lookup } from '../lookup.js';

/** Text on one line: white space folded. @param {string} text */
export const oneLine = (text) => visible(text).replace(/\s+/g, ' ').trim();

/** Start of a text of at most `limit` UTF-16 units, never half a character. @param {string} text @param {number} limit */
export function startOf(text, limit) {
  if (text.length <= limit) return text;
  const end = /[\ud800-\udbff]/.test(text[limit - 1]) ? limit - 1 : limit;
  return text.slice(0, end);
}

export const LEVELS = 8;

/**
 * @typedef {{label: string, unit: string, low: string, high: string, level: (value: number) => number}} Colouring
 *   `level` is 0 for what needs no attention and ±1 for the strongest colour, fixed so that colours mean the same in
 *   every completion; `low` and `high` are the values at the ends of the scale, which has a negative half where a
 *   value has a sign
 */

/** Decades of the scale of contributions: what is smaller than 1e-6 has no colour. */
const DECADES = 6;

/** @param {number} value */
const byDecades = (value) => Math.sign(value) * Math.max(0, 1 + Math.log10(Math.abs(value)) / DECADES);

const SIGNED_LOG = { unit: 'of the loss, by decades', low: '≤ −1', high: '≥ 1 (0: below 1e−6)', level: byDecades };

/** Values that tokens can be coloured by. @satisfies {Record<string, Colouring>} */
export const COLOURINGS = {
  logprob: {
    label: 'log-prob',
    unit: 'nats',
    level: (value) => -value / 5,
    low: '0 · certain',
    high: '≤ −5 · surprising',
  },
  entropy: {
    label: 'entropy',
    unit: 'nats',
    level: (value) => value / 2.5,
    low: '0 · no choice',
    high: '≥ 2.5 · open',
  },
  ratio: {
    label: 'ratio',
    unit: 'by its logarithm; 1 has no colour',
    level: (value) => Math.log(value) / Math.log(2),
    low: '≤ 0.5',
    high: '≥ 2',
  },
  clipped: {
    label: 'clipped',
    unit: 'side of the bound, or the cap of negative advantages (dual)',
    level: (value) => (value > 1 ? 0.5 : value),
    low: 'below',
    high: 'above · dual half as strong',
  },
  advantage: {
    label: 'advantage',
    unit: '',
    level: (value) => value / 2,
    low: '≤ −2',
    high: '≥ 2',
  },
  kl: { label: 'KL to reference', unit: 'nats (k3)', level: (value) => value / 0.2, low: '0', high: '≥ 0.2' },
  mismatch: {
    label: 'mismatch',
    unit: 'nats, trainer less sampler',
    level: (value) => value / 0.5,
    low: '≤ −0.5',
    high: '≥ 0.5',
  },
  correction: {
    label: 'correction weight',
    unit: '1 has no colour',
    level: (value) => value - 1,
    low: '0',
    high: '≥ 2',
  },
  gradient: { label: 'gradient', ...SIGNED_LOG, unit: 'd loss / d log-prob, by decades' },
  loss: { label: 'loss', ...SIGNED_LOG },
};

/** @typedef {keyof typeof COLOURINGS} ColourName */

/** Whether a scale has a negative half. @param {string} by */
export const isSigned = (by) => !['logprob', 'entropy', 'kl'].includes(by);

/**
 * Colour level -LEVELS..LEVELS of a token's value; `null` if there is none (masked, not recorded).
 * @param {ColourName} by
 * @param {number | string | null | undefined} value
 */
export function levelOf(by, value) {
  if (value === '-Infinity') return by === 'logprob' ? LEVELS : null;
  if (typeof value !== 'number' || Number.isNaN(value)) return null;
  const least = isSigned(by) ? -1 : 0;
  return Math.round(Math.min(1, Math.max(least, COLOURINGS[by].level(value))) * LEVELS) || 0;
}

/** Class of a colour level. @param {number | null} level */
export const levelClass = (level) => (level === null ? 'is-masked' : level < 0 ? `cold-${-level}` : `heat-${level}`);

/**
 * A completion's values by which its tokens are coloured; undefined if they were not recorded.
 * @param {Api.TokensAnswer} tokens
 * @param {ColourName} by
 * @returns {(number | string)[] | undefined}
 */
export function valuesOf(tokens, by) {
  const { arrays, advantage } = tokens;
  if (by === 'mismatch') {
    const trainer = arrays.old_logprob ?? arrays.policy_logprob;
    return trainer && arrays.logprob && trainer.map((value, i) => difference(value, arrays.logprob[i]));
  }
  if (by === 'advantage' && !arrays.advantage && typeof advantage === 'number')
    return tokens.tokens.map(() => advantage);
  return arrays[by];
}

/** @param {number | string} a @param {number | string} b */
const difference = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : 'NaN');

/**
 * Tokens in pieces of about `limit` characters, each of at least one token: [first, end) of each.
 * @param {string[]} tokens
 * @param {number} limit
 * @returns {[number, number][]}
 */
export function chunksOf(tokens, limit) {
  /** @type {[number, number][]} */
  const chunks = [];
  let first = 0;
  let length = 0;
  tokens.forEach((token, i) => {
    length += token.length + 1; // an empty token needs an element, too
    if (length < limit && i + 1 < tokens.length) return;
    chunks.push([first, i + 1]);
    first = i + 1;
    length = 0;
  });
  return chunks;
}

/**
 * A token's address within its group: completion and token, `2.17`.
 * @param {string} text @returns {[number, number] | null}
 */
export function readTokenAddress(text) {
  const match = /^(\d{1,4})\.(\d{1,7})$/.exec(text);
  return match ? [Number(match[1]), Number(match[2])] : null;
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

/** @type {Record<string, string>} */
const WHITE = { '\n': '⏎', '\t': '⇥', ' ': '␣' };

/** A token in which white space can be seen. @param {string} token */
export const spelledToken = (token) =>
  token === '' ? '∅' : [...token].map((c) => lookup(WHITE, c) ?? visible(c)).join('');

/**
 * The likeliest tokens in place of a token, without those that sampling cut off; none if they were not recorded.
 * @param {Api.TokensAnswer} tokens @param {number} at
 * @returns {{id: number, text: string | null, probability: string, isDrawn: boolean}[]} `text` null: unknown here
 */
export function alternativesAt({ alternatives, token_ids: drawn }, at) {
  const { ids = [], logprobs = [], strings = {} } = alternatives ?? {};
  return (ids[at] ?? []).flatMap((id, rank) => {
    const logprob = logprobs[at][rank];
    if (typeof logprob !== 'number') return [];
    const text = Object.hasOwn(strings, id) ? spelledToken(strings[id]) : null;
    return [{ id, text, probability: probabilityText(logprob), isDrawn: id === drawn[at] }];
  });
}
