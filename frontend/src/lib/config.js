/** Configs as flat lists of fields, and what differs between several of them. */

/** @typedef {Record<string, unknown>} Flat dotted path -> value */

/** Dotted paths of all leaves; a list is one leaf. @param {unknown} value @returns {Flat} */
export function flatten(value, path = '') {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return { [path]: value };
  return Object.assign({}, ...Object.entries(value).map(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key)));
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
    .map((path) => ({ path, values: flats.map((flat) => flat[path]) }))
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
    .map((path) => ({ path, cells: flats.map((inside) => unique(inside.map((flat) => flat[path]))) }))
    .filter(({ cells }) => unique(cells.flat()).length > 1);
}

const unique = (values) => [...new Map(values.map((value) => [spell(value), value])).values()];

const spell = (value) => (value === undefined ? 'undefined' : JSON.stringify(value));

/** A config value as short text. @param {unknown} value */
export function formatField(value) {
  if (value === undefined || value === null) return '–';
  if (Array.isArray(value)) return value.map((item) => (isRecord(item) ? item.name ?? item.type ?? JSON.stringify(item) : String(item))).join(', ');
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return isRecord(value) ? JSON.stringify(value) : String(value);
}

const isRecord = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
