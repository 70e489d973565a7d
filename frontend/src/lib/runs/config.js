/** Configs as flat lists of fields, and what differs between several of them. */
import { isRecord } from '../launch/schema.js';
import { lookup } from '../lookup.js';

/** @typedef {Record<string, unknown>} Flat dotted path -> value */

/**
 * Dotted paths of all leaves. Items of a list of records go by their names (`rewards.correctness.map`), and the list
 * itself is a leaf with those names in its order; any other list is one leaf. @param {unknown} value @returns {Flat}
 */
export function flatten(value, path = '') {
  if (Array.isArray(value) && value.length && value.every(isRecord)) {
    const names = namesIn(value);
    return Object.assign({ [path]: names }, ...value.map((item, i) => flatten(item, `${path}.${names[i]}`)));
  }
  if (!isRecord(value) || !Object.keys(value).length) return path ? { [path]: value } : {};
  return Object.assign(
    {},
    ...Object.entries(value).map(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key)),
  );
}

/** A name for each record of a list; a second one of the same name is numbered. @param {any[]} items */
function namesIn(items) {
  const times = new Map();
  return items.map(({ entry_point: entry, name, type }, i) => {
    const label = String(entry ?? name ?? type ?? i + 1);
    times.set(label, (times.get(label) ?? 0) + 1);
    return times.get(label) > 1 ? `${label} ${times.get(label)}` : label;
  });
}

/**
 * Fields whose value is not the same in all configs, in the order of their first appearance.
 * A field that a config lacks has the value `undefined`.
 * @param {unknown[]} configs @returns {{path: string, values: unknown[]}[]}
 */
export function differences(configs) {
  const flats = configs.map((config) => flatten(config));
  const paths = [...new Set(flats.flatMap(Object.keys))];
  return paths
    .map((path) => ({ path, values: flats.map((flat) => lookup(flat, path)) }))
    .filter(({ values }) => new Set(values.map(spell)).size > 1);
}

/**
 * Fields that differ within or between groups of configs; each cell lists the values that a group has.
 * @param {{name: string, configs: unknown[]}[]} groups @param {string[]} [ignored] paths
 * @returns {{path: string, cells: unknown[][]}[]}
 */
export function groupDifferences(groups, ignored = ['seed']) {
  const flats = groups.map(({ configs }) => configs.map((config) => flatten(config)));
  const paths = [...new Set(flats.flat().flatMap(Object.keys))].filter((path) => !ignored.includes(path));
  return paths
    .map((path) => ({ path, cells: flats.map((inside) => unique(inside.map((flat) => lookup(flat, path)))) }))
    .filter(({ cells }) => unique(cells.flat()).length > 1);
}

const unique = (/** @type {unknown[]} */ values) => [...new Map(values.map((value) => [spell(value), value])).values()];

const spell = (/** @type {unknown} */ value) => (value === undefined ? 'undefined' : JSON.stringify(value));

/** A config value as short text; values that differ have texts that differ. @param {unknown} value */
export function formatField(value) {
  if (value === undefined) return '–';
  if (Array.isArray(value) && value.length)
    return value.map((item) => (typeof item === 'object' ? JSON.stringify(item) : String(item))).join(', ');
  if (value === '') return '""';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
