/**
 * View state as a query string. A spec maps each parameter to its codec:
 *
 *     const SPEC = { x: choice(['step', 'wall', 'tokens']), runs: list(), smoothing: number(0, { max: 0.999 }) };
 *
 * A value equal to its default is not written, so that addresses stay short. An invalid value (in an old or mistyped
 * link) becomes the default.
 *
 * @template T
 * @typedef {{initial: T, read: (text: string) => T | undefined, write: (value: T) => string}} Codec
 */
import { lookup } from './lookup.js';
/** @typedef {Record<string, Codec<any>>} Spec */
/** @template {Spec} S @typedef {{[K in keyof S]: S[K]['initial']}} Values */

/** @param {string} [initial] @returns {Codec<string>} */
export const text = (initial = '') => ({ initial, read: (t) => t, write: (v) => v });

/**
 * @template {string} T @param {readonly T[]} options the first is the default @param {T} [initial]
 * @returns {Codec<T>}
 */
export const choice = (options, initial = options[0]) => ({
  initial,
  read: (t) => options.find((option) => option === t),
  write: (v) => v,
});

/**
 * @template {number | null} T `number | null` if the initial value is null
 * @param {T} initial @param {{min?: number, max?: number}} [limits] @returns {Codec<T | number>}
 */
export const number = (initial, { min = -Infinity, max = Infinity } = {}) => ({
  initial,
  read: (input) => {
    const value = Number(input);
    return input.trim() !== '' && value >= min && value <= max ? value : undefined;
  },
  write: String,
});

/** @returns {Codec<boolean>} */
export const flag = (initial = false) => ({
  initial,
  read: (t) => (t === '1' ? true : t === '0' ? false : undefined),
  write: (v) => (v ? '1' : '0'),
});

/**
 * A comma-separated list of strings. `null` (the default) means "not chosen", and an empty list is written as `-`.
 * @overload
 * @returns {Codec<string[] | null>}
 */
/**
 * @overload
 * @param {string[]} initial
 * @returns {Codec<string[]>}
 */
/** @param {string[] | null} initial @returns {Codec<any>} */
export function list(initial = null) {
  return {
    initial,
    read: (t) => (t === '-' ? [] : t.split(',').filter(Boolean).map(unescapeComma)),
    write: (/** @type {string[]} */ v) => (v.length ? v.map(escapeComma).join(',') : '-'),
  };
}

/** Two numbers, `low,high`, or `null` if absent. @returns {Codec<[number, number] | null>} */
export const range = () => ({
  initial: null,
  read: (input) => {
    const pair = input.split(',').map(Number);
    const [low, high] = pair;
    return pair.length === 2 && pair.every(Number.isFinite) && low < high ? [low, high] : undefined;
  },
  write: (v) => (v ?? []).map((edge) => Number(edge.toPrecision(6))).join(','),
});

const escapeComma = (/** @type {string} */ t) => (t === '-' ? '~-' : t.replaceAll('~', '~~').replaceAll(',', '~.'));
const unescapeComma = (/** @type {string} */ t) => t.replace(/~([~.-])/g, (_, sign) => (sign === '.' ? ',' : sign));

/** @template {Spec} S @param {string} search @param {S} spec @returns {Values<S>} */
export function decode(search, spec) {
  const query = new URLSearchParams(search);
  const values = Object.entries(spec).map(([name, codec]) => {
    const parameter = query.get(name);
    return [name, (parameter === null ? undefined : codec.read(parameter)) ?? codec.initial];
  });
  return /** @type {Values<S>} */ (Object.fromEntries(values));
}

/**
 * Returns the query string with some changes. Other parameters stay, defaults are removed, and `undefined` resets.
 * @param {string} search @param {object} changes @param {Spec} spec
 */
export function encode(search, changes, spec) {
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    const codec = lookup(spec, name);
    if (!codec) throw new Error(`unknown view parameter: ${name}`);
    if (value === undefined || isSame(value, codec.initial)) query.delete(name);
    else query.set(name, codec.write(value));
  }
  return toSearch(query);
}

/**
 * Writes a readable query, in which commas and slashes are not escaped.
 * @param {URLSearchParams | string[][]} query
 */
export function toSearch(query) {
  const encoded = new URLSearchParams(query).toString().replaceAll('%2C', ',').replaceAll('%2F', '/');
  return encoded ? `?${encoded}` : '';
}

/**
 * Returns the address of a path with parameters. Empty parameters are omitted.
 * @param {string} path @param {object} parameters
 */
export function address(path, parameters = {}) {
  const nonEmpty = Object.entries(parameters).filter(
    ([, v]) => v !== undefined && v !== null && v !== '' && v !== false,
  );
  return path + toSearch(nonEmpty.map(([name, v]) => [name, Array.isArray(v) ? v.join(',') : String(v)]));
}

const isSame = (/** @type {unknown} */ a, /** @type {unknown} */ b) =>
  a === b || JSON.stringify(a) === JSON.stringify(b);
