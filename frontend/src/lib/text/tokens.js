/** The parts of a policy's text and the colours of its tokens. */
import { makeVisible } from './visible.js';
import { lookup } from '../lookup.js';

/** Returns text in one line, with collapsed white space. @param {string} text */
export const toOneLine = (text) => makeVisible(text).replace(/\s+/g, ' ').trim();

/**
 * Returns the start of a text of at most `limit` UTF-16 units without splitting a character.
 * @param {string} text @param {number} limit
 */
export function takeStart(text, limit) {
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

/** Decades in the scale of contributions. Values below 1e-6 have no colour. */
const DECADES = 6;

/** @param {number} value */
const scaleByDecades = (value) => Math.sign(value) * Math.max(0, 1 + Math.log10(Math.abs(value)) / DECADES);

const SIGNED_LOG = { unit: 'of the loss, by decades', low: '≤ −1', high: '≥ 1 (0: below 1e−6)', level: scaleByDecades };

/** Values by which tokens can be coloured. @satisfies {Record<string, Colouring>} */
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

/** Returns whether a scale has a negative half. @param {string} colouring */
export const isSigned = (colouring) => !['logprob', 'entropy', 'kl'].includes(colouring);

/**
 * Returns the colour level of a token's value from -LEVELS to LEVELS, or `null` without a value (masked, not recorded).
 * @param {ColourName} colouring
 * @param {number | string | null | undefined} value
 */
export function findLevel(colouring, value) {
  if (value === '-Infinity') return colouring === 'logprob' ? LEVELS : null;
  if (typeof value !== 'number' || Number.isNaN(value)) return null;
  const lowest = isSigned(colouring) ? -1 : 0;
  return Math.round(Math.min(1, Math.max(lowest, COLOURINGS[colouring].level(value))) * LEVELS) || 0;
}

/** Returns the CSS class of a colour level. @param {number | null} level */
export const chooseLevelClass = (level) =>
  level === null ? 'is-masked' : level < 0 ? `cold-${-level}` : `heat-${level}`;

/**
 * Returns a completion's values by which its tokens are coloured, or undefined if they were not recorded.
 * @param {Api.TokensResponse} tokens
 * @param {ColourName} colouring
 * @returns {(number | string)[] | undefined}
 */
export function readValues(tokens, colouring) {
  const { arrays, advantage } = tokens;
  if (colouring === 'mismatch') {
    const trainerLogprobs = arrays.old_logprob ?? arrays.policy_logprob;
    return (
      trainerLogprobs &&
      arrays.logprob &&
      trainerLogprobs.map((value, i) => computeDifference(value, arrays.logprob[i]))
    );
  }
  if (colouring === 'advantage' && !arrays.advantage && typeof advantage === 'number')
    return tokens.tokens.map(() => advantage);
  return arrays[colouring];
}

/** @param {number | string} a @param {number | string} b */
const computeDifference = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : 'NaN');

/**
 * Returns chunks of about `limit` characters and at least one token, as [first, end).
 * @param {string[]} tokens
 * @param {number} limit
 * @returns {[number, number][]}
 */
export function splitChunks(tokens, limit) {
  /** @type {[number, number][]} */
  const chunks = [];
  let first = 0;
  let length = 0;
  tokens.forEach((token, i) => {
    length += token.length + 1; // even an empty token needs an element
    if (length < limit && i + 1 < tokens.length) return;
    chunks.push([first, i + 1]);
    first = i + 1;
    length = 0;
  });
  return chunks;
}

/**
 * Returns the completion and the token of an address in the group, such as `2.17`.
 * @param {string} text @returns {[number, number] | null}
 */
export function readTokenAddress(text) {
  const match = /^(\d{1,4})\.(\d{1,7})$/.exec(text);
  return match ? [Number(match[1]), Number(match[2])] : null;
}

/**
 * Returns a value of a token. Masked tokens have none, even if one is stored.
 * @param {(number | string)[] | undefined} array
 * @param {number[] | boolean[] | undefined} mask
 * @param {number} index
 */
export const readValue = (array, mask, index) => (mask && !mask[index] ? null : (array?.[index] ?? null));

/** Returns a probability from its logarithm as readable text, even for tiny values. @param {number} logprob */
export function probabilityText(logprob) {
  const probability = Math.exp(logprob);
  if (probability >= 0.9995) return probability === 1 ? '100 %' : '> 99.9 %';
  if (probability >= 0.001) return `${(probability * 100).toFixed(1)} %`;
  return probability.toExponential(1).replace('-', '−');
}

/** @type {Record<string, string>} */
const WHITE = { '\n': '⏎', '\t': '⇥', ' ': '␣' };

/** Returns a token with visible white space. @param {string} token */
export const spellToken = (token) =>
  token === '' ? '∅' : [...token].map((c) => lookup(WHITE, c) ?? makeVisible(c)).join('');

/**
 * Returns the likeliest alternatives to a token, without those that sampling cut off, or none if they were not
 * recorded.
 * @param {Api.TokensResponse} tokens @param {number} index
 * @returns {{id: number, text: string | null, probability: string, isDrawn: boolean}[]} `text` null: unknown here
 */
export function listAlternatives({ alternatives, token_ids: drawnIds }, index) {
  const { ids = [], logprobs = [], strings = {} } = alternatives ?? {};
  return (ids[index] ?? []).flatMap((id, rank) => {
    const logprob = logprobs[index][rank];
    if (typeof logprob !== 'number') return [];
    const text = Object.hasOwn(strings, id) ? spellToken(strings[id]) : null;
    return [{ id, text, probability: probabilityText(logprob), isDrawn: id === drawnIds[index] }];
  });
}
