/**
 * View state as a query string. A spec names each parameter with its codec:
 *
 *     const SPEC = { x: choice(['step', 'wall', 'tokens']), runs: list(), smoothing: number(0, { max: 0.999 }) };
 *
 * A value equal to its default is not written, so a plain address stays plain. A value that cannot be
 * read (an old or mistyped link) becomes the default.
 *
 * @template T
 * @typedef {{initial: T, read: (text: string) => T | undefined, write: (value: T) => string}} Codec
 */
/** @typedef {Record<string, Codec<any>>} Spec */
/** @template {Spec} S @typedef {{[K in keyof S]: S[K]['initial']}} Values */

/** @param {string} [initial] @returns {Codec<string>} */
export const text = (initial = '') => ({ initial, read: (t) => t, write: (v) => v });

/** @param {string[]} options the first is the default @returns {Codec<string>} */
export const choice = (options, initial = options[0]) => ({
  initial,
  read: (t) => (options.includes(t) ? t : undefined),
  write: (v) => v,
});

/** @returns {Codec<number>} */
export const number = (initial, { min = -Infinity, max = Infinity } = {}) => ({
  initial,
  read: (t) => {
    const value = Number(t);
    return t.trim() !== '' && value >= min && value <= max ? value : undefined;
  },
  write: String,
});

/** @returns {Codec<boolean>} */
export const flag = (initial = false) => ({
  initial,
  read: (t) => (t === '1' ? true : t === '0' ? false : undefined),
  write: (v) => (v ? '1' : '0'),
});

/** A comma list of strings; `null` (the default) means "not chosen", unlike an empty list, written as `-`.
 * @param {string[] | null} [initial] @returns {Codec<string[] | null>} */
export const list = (initial = null) => ({
  initial,
  read: (t) => (t === '-' ? [] : t.split(',').filter(Boolean).map(unescapeComma)),
  write: (v) => (v.length ? v.map(escapeComma).join(',') : '-'),
});

/** Two numbers, `low,high`; `null` when absent. @returns {Codec<[number, number] | null>} */
export const range = () => ({
  initial: null,
  read: (t) => {
    const pair = t.split(',').map(Number);
    return pair.length === 2 && pair.every(Number.isFinite) && pair[0] < pair[1] ? pair : undefined;
  },
  write: (v) => v.map((edge) => Number(edge.toPrecision(6))).join(','),
});

const escapeComma = (t) => t.replaceAll('~', '~~').replaceAll(',', '~.');
const unescapeComma = (t) => t.replaceAll('~.', ',').replaceAll('~~', '~');

/** @template {Spec} S @param {string} search @param {S} spec @returns {Values<S>} */
export function decode(search, spec) {
  const query = new URLSearchParams(search);
  return Object.fromEntries(
    Object.entries(spec).map(([name, codec]) => {
      const found = query.get(name);
      return [name, (found === null ? undefined : codec.read(found)) ?? codec.initial];
    }),
  );
}

/**
 * The query string after some changes: other parameters stay, defaults go, `undefined` resets.
 * @param {string} search @param {object} changes @param {Spec} spec
 */
export function encode(search, changes, spec) {
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    const codec = spec[name];
    if (!codec) throw new Error(`unknown view parameter: ${name}`);
    if (value === undefined || same(value, codec.initial)) query.delete(name);
    else query.set(name, codec.write(value));
  }
  return toSearch(query);
}

/** Spells a query so that it stays readable: commas and slashes are not escaped. */
export function toSearch(query) {
  const written = new URLSearchParams(query).toString().replaceAll('%2C', ',').replaceAll('%2F', '/');
  return written ? `?${written}` : '';
}

/** Address from a path and parameters; empty ones are left out. @param {string} path @param {object} parameters */
export function address(path, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, v]) => v !== undefined && v !== null && v !== '' && v !== false);
  return path + toSearch(kept.map(([name, v]) => [name, Array.isArray(v) ? v.join(',') : String(v)]));
}

const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);
