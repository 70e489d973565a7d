/** The sweep of a launch: the knobs with several values, and the fields that can be swept. Pure. */
import { listFields, isRecord, listMemberNames, resolveNode, readTag, writeTyped } from './schema.js';
import { lookup } from '../lookup.js';

/** @typedef {{path: string, values: string}} SweptKnob */
/**
 * @typedef {{sampler: 'tpe' | 'random', metric: string, direction: 'catalog' | 'maximize' | 'minimize',
 *   reading: 'final' | 'best' | 'mean_of_3', pruner: 'none' | 'median' | 'halving', prune_sick: boolean,
 *   first_rung: number, max_active_runs: number, top: number, hours: number | null, money: number | null}} Search
 * @typedef {{knobs: SweptKnob[], method: 'grid' | 'random' | 'search', cells: number, seed: number,
 *   search?: Partial<Search>}} Sweep
 */
/** @typedef {import('./schema.js').Field} Field */

/** @type {Sweep} */
export const NO_SWEEP = { knobs: [], method: 'grid', cells: 12, seed: 0 };

/** The initial settings of a search. @type {Search} */
export const SEARCH = {
  sampler: 'tpe',
  metric: 'eval/accuracy',
  direction: 'catalog',
  reading: 'final',
  pruner: 'median',
  prune_sick: true,
  first_rung: 0.5,
  max_active_runs: 4,
  top: 3,
  hours: null,
  money: null,
};

const isWhole = (/** @type {unknown} */ value) => Number.isInteger(value) && Number(value) >= 0;

/** Returns whether each setting of a search has the right type. @param {any} value */
const isSearch = (value) =>
  isRecord(value) &&
  Object.entries(value).every(
    ([key, setting]) =>
      Object.hasOwn(SEARCH, key) &&
      (['hours', 'money'].includes(key)
        ? setting === null || typeof setting === 'number'
        : typeof setting === typeof SEARCH[/** @type {keyof Search} */ (key)]),
  );

/** Returns whether a value from the address is a sweep. @param {any} value @returns {value is Sweep} */
export const isSweep = (value) =>
  isRecord(value) &&
  ['grid', 'random', 'search'].includes(value.method) &&
  (value.search === undefined || isSearch(value.search)) &&
  isWhole(value.cells) &&
  isWhole(value.seed) &&
  Array.isArray(value.knobs) &&
  value.knobs.every((knob) => isRecord(knob) && typeof knob.path === 'string' && typeof knob.values === 'string');

/** Returns whether a text is a list or a range of numbers. @param {string} text */
export const meansSeveral = (text) => /\d\s*(,|\.\.)/.test(text);

/**
 * Returns a sweep in which a knob has these values instead of its earlier ones.
 * @param {Sweep} sweep @param {string} path @param {string} values @returns {Sweep}
 */
export function withKnob(sweep, path, values) {
  const exists = sweep.knobs.some((knob) => knob.path === path);
  const knob = { path, values };
  return {
    ...sweep,
    knobs: exists ? sweep.knobs.map((old) => (old.path === path ? knob : old)) : [...sweep.knobs, knob],
  };
}

/** @param {Sweep} sweep @param {string} path @returns {Sweep} */
export const withoutKnob = (sweep, path) => ({ ...sweep, knobs: sweep.knobs.filter((knob) => knob.path !== path) });

/**
 * Returns the knob that sweeps a field, with initial values: all values if there are few, else only the current one.
 * @param {import('./schema.js').Node} root @param {Field} field @param {any} value @returns {SweptKnob | null}
 */
export function makeKnob(root, { path, node, kind }, value) {
  if (kind === 'union') return { path: `${path}.${readTag(node)}`, values: listMemberNames(root, node).join(', ') };
  if (kind === 'choice') return { path, values: node.enum.join(', ') };
  if (kind === 'boolean') return { path, values: 'true, false' };
  return kind === 'number' || (kind === 'text' && !isRecord(value)) ? { path, values: writeTyped(value) } : null;
}

/**
 * Returns every knob of a config that can be swept, with the preset first.
 * @param {import('./schema.js').Node} root @param {Record<string, any>} fullConfig @returns {SweptKnob[]}
 */
export const listSweepable = (root, fullConfig) => [
  { path: 'preset', values: fullConfig.preset || 'grpo' },
  ...listInside(root, root, fullConfig, '').filter(({ path }) => !['seed', 'preset'].includes(path)),
];

/** @returns {SweptKnob[]} */
function listInside(
  /** @type {any} */ root,
  /** @type {any} */ node,
  /** @type {any} */ value,
  /** @type {string} */ path,
) {
  return listFields(root, node, value, path).flatMap((field) => {
    const fieldValue = lookup(value, field.key);
    const knob = makeKnob(root, field, fieldValue);
    if (Array.isArray(fieldValue) && ['list', 'sections'].includes(field.kind))
      return fieldValue.flatMap((item, i) =>
        listInside(root, resolveNode(root, field.node.items), item, `${field.path}.${i}`),
      );
    const isParted = ['union', 'section'].includes(field.kind);
    return [
      ...(knob ? [knob] : []),
      ...(isParted && isRecord(fieldValue) ? listInside(root, field.node, fieldValue, field.path) : []),
    ];
  });
}
