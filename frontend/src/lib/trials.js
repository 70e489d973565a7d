/** Changes of a config as editable text: one `path: value` per line, with values as JSON. */
import { formatShortValue } from './launch/form.js';
import { getAt, findKnobDifferences } from './launch/layers.js';

/** @param {Record<string, unknown>} changes */
export const changesText = (changes) =>
  Object.entries(changes)
    .map(([path, value]) => `${path}: ${JSON.stringify(value)}`)
    .join('\n');

/**
 * Returns the differences between a config and its changes. For lists of named items, these are fields of items, such
 * as `rewards: think_format.weight: 1 → 0`.
 * @param {Record<string, any> | null | undefined} config @param {Record<string, unknown>} changes
 * @returns {string[]}
 */
export const describeChangedFields = (config, changes) =>
  Object.entries(changes).flatMap(([path, value]) => {
    const oldValue = getAt(config ?? {}, path);
    if (oldValue === undefined) return [`${path}: ${formatShortValue(value)}`];
    const itemTexts = isNamed(oldValue) && isNamed(value) ? describeItemChanges(oldValue, value) : null;
    if (itemTexts) return itemTexts.map((words) => `${path}: ${words}`);
    return describeFieldChanges({ [path]: oldValue }, { [path]: value });
  });

/** @param {Record<string, any>} oldFields @param {Record<string, any>} newFields */
const describeFieldChanges = (oldFields, newFields) =>
  findKnobDifferences(oldFields, newFields)
    .filter(({ after }) => after !== undefined)
    .map(({ path, before, after }) => `${path}: ${formatShortValue(before)} → ${formatShortValue(after)}`);

/** @param {any[]} oldItems @param {any[]} newItems */
function describeItemChanges(oldItems, newItems) {
  const [oldByName, newByName] = [oldItems, newItems].map((items) => new Map(items.map((item) => [item.name, item])));
  return [...new Set([...oldByName.keys(), ...newByName.keys()])].flatMap((name) => {
    if (!newByName.has(name)) return [`without ${name}`];
    if (!oldByName.has(name)) return [`with ${formatShortValue(newByName.get(name))}`];
    return describeFieldChanges({ [name]: oldByName.get(name) }, { [name]: newByName.get(name) });
  });
}

/** Returns whether a value is a list of named items. @param {unknown} value @returns {value is {name: string}[]} */
const isNamed = (value) =>
  Array.isArray(value) &&
  value.every((item) => typeof item?.name === 'string') &&
  new Set(value.map(({ name }) => name)).size === value.length;

/** Returns whether a change contains a whole list, most of which may be unchanged. @param {string} text of changes */
export const hasList = (text) => Object.values(readChanges(text).changes).some(Array.isArray);

const WORD = /^[A-Za-z_][\w./-]*$/;

/**
 * Returns the changes in a text, in which words need no quotes. `error` names the first invalid line.
 * @param {string} text @returns {{changes: Record<string, unknown>, error: string}}
 */
export function readChanges(text) {
  /** @type {Map<string, unknown>} */
  const changes = new Map();
  for (const [i, line] of text.split('\n').entries()) {
    if (!line.trim()) continue;
    const [, path, value] = line.match(/^\s*([^:\s]+)\s*:\s*(.+?)\s*$/) ?? [];
    const read = path ? readValue(value) : undefined;
    if (read === undefined)
      return { changes: {}, error: `line ${i + 1} is not “path: value”, such as optimizer.lr: 0.0001` };
    if (changes.has(path)) return { changes: {}, error: `line ${i + 1} names ${path} again` };
    changes.set(path, read);
  }
  return { changes: Object.fromEntries(changes), error: '' };
}

/** Returns the value of a text, or undefined if it is neither JSON nor a word. @param {string} text */
function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return WORD.test(text) ? text : undefined;
  }
}

/**
 * Returns the errors of a plan by field: the number of an arm, or the name of another field.
 * @param {{path: string, message: string}[]} errors @returns {Map<string, string>}
 */
export function placeErrors(errors) {
  const errorByPlace = new Map();
  for (const { path, message } of errors) {
    const [, number, field = ''] = path.match(/^arms\.(\d+)(?:\.changes)?\.?(.*)$/) ?? [];
    const key = number ?? path.split('.')[0];
    const words = field ? `${field} ${message}` : message;
    errorByPlace.set(key, errorByPlace.has(key) ? `${errorByPlace.get(key)}; ${words}` : words);
  }
  return errorByPlace;
}
