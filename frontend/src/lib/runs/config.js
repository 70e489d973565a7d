/** Configs as flat lists of fields, and the differences between several configs. */
import { isRecord } from '../launch/schema.js';
import { lookup } from '../lookup.js';

/** @typedef {Record<string, unknown>} Flat dotted path -> value */

/**
 * Returns the dotted paths of all leaves. Items of a list of records are addressed by name (`rewards.correctness.map`),
 * and the list itself is a leaf with these names in order. Any other list is one leaf.
 * @param {unknown} value @returns {Flat}
 */
export function flatten(value, path = '') {
  if (Array.isArray(value) && value.length && value.every(isRecord)) {
    const names = makeItemNames(value);
    return Object.assign({ [path]: names }, ...value.map((item, i) => flatten(item, `${path}.${names[i]}`)));
  }
  if (!isRecord(value) || !Object.keys(value).length) return path ? { [path]: value } : {};
  return Object.assign(
    {},
    ...Object.entries(value).map(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key)),
  );
}

/** Returns a name for each record of a list. Repeated names are numbered. @param {any[]} items */
function makeItemNames(items) {
  const times = new Map();
  return items.map(({ entry_point: entry, name, type }, i) => {
    const label = String(entry ?? name ?? type ?? i + 1);
    times.set(label, (times.get(label) ?? 0) + 1);
    return times.get(label) > 1 ? `${label} ${times.get(label)}` : label;
  });
}

/**
 * Returns the fields with different values, in the order of their first appearance. A missing field has the value
 * `undefined`.
 * @param {unknown[]} configs @returns {{path: string, values: unknown[]}[]}
 */
export function findDifferences(configs) {
  const flats = configs.map((config) => flatten(config));
  const paths = [...new Set(flats.flatMap(Object.keys))];
  return paths
    .map((path) => ({ path, values: flats.map((flat) => lookup(flat, path)) }))
    .filter(({ values }) => new Set(values.map(spell)).size > 1);
}

/**
 * Returns the fields that differ within or between groups of configs. Each cell lists the values of a group.
 * @param {{name: string, configs: unknown[]}[]} groups @param {string[]} [ignoredPaths] paths
 * @returns {{path: string, cells: unknown[][]}[]}
 */
export function groupDifferences(groups, ignoredPaths = ['seed']) {
  const flats = groups.map(({ configs }) => configs.map((config) => flatten(config)));
  const paths = [...new Set(flats.flat().flatMap(Object.keys))].filter((path) => !ignoredPaths.includes(path));
  return paths
    .map((path) => ({ path, cells: flats.map((inside) => listUnique(inside.map((flat) => lookup(flat, path)))) }))
    .filter(({ cells }) => listUnique(cells.flat()).length > 1);
}

const listUnique = (/** @type {unknown[]} */ values) => [
  ...new Map(values.map((value) => [spell(value), value])).values(),
];

const spell = (/** @type {unknown} */ value) => (value === undefined ? 'undefined' : JSON.stringify(value));

/** Returns a config value as short text. Different values have different texts. @param {unknown} value */
export function formatField(value) {
  if (value === undefined) return '–';
  if (Array.isArray(value) && value.length)
    return value.map((item) => (typeof item === 'object' ? JSON.stringify(item) : String(item))).join(', ');
  if (value === '') return '""';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
