/** Access to the fields of partial configs, and the differences between two configs. */
import { lookup } from '../lookup.js';
import { isRecord } from './schema.js';

/** @typedef {Record<string, any>} Fields a partial config */

/** @param {any} object @param {string} path */
export const getAt = (object, path) => path.split('.').reduce((value, key) => lookup(value, key), object);

/** Returns whether the layer itself sets a value at or below the path. */
export const writes = (/** @type {Fields} */ fields, /** @type {string} */ path) => getAt(fields, path) !== undefined;

/**
 * Returns a layer with another field and with the tags of all unions in its path, so that the field keeps its meaning
 * on any lower layer.
 * @param {Fields} fields
 * @param {string} path
 * @param {any} value
 * @param {Fields} fullConfig the full config
 * @returns {Fields}
 */
export function setAt(fields, path, value, fullConfig) {
  const [key, ...innerPath] = path.split('.');
  if (!innerPath.length) return { ...fields, [key]: value };
  const fullValue = lookup(fullConfig, key);
  if (Array.isArray(fullValue)) return { ...fields, [key]: setInList(fullValue, innerPath, value) };
  const section = isRecord(lookup(fields, key)) ? lookup(fields, key) : {};
  const tag = typeof fullValue?.type === 'string' ? { type: fullValue.type } : {};
  return { ...fields, [key]: { ...tag, ...setAt(section, innerPath.join('.'), value, fullValue) } };
}

/**
 * Returns a copy of a list with a changed item, because lists are always written completely.
 * @param {any[]} items @param {string[]} path @param {any} value @returns {any[]}
 */
const setInList = (items, [index, ...innerPath], value) =>
  items.map((item, i) => (String(i) !== index ? item : innerPath.length ? setInside(item, innerPath, value) : value));

/** @param {any} item @param {string[]} path @param {any} value @returns {any} */
function setInside(item, [key, ...innerPath], value) {
  if (Array.isArray(item)) return setInList(item, [key, ...innerPath], value);
  return { ...item, [key]: innerPath.length ? setInside(lookup(item, key) ?? {}, innerPath, value) : value };
}

/**
 * Returns a layer without a field, and without sections that then equal the layer below.
 * @param {Fields} fields
 * @param {string} path
 * @param {Fields} below
 * @returns {Fields}
 */
export function unsetAt(fields, path, below) {
  const [key, ...innerPath] = path.split('.');
  const { [key]: section, ...otherFields } = fields;
  if (!innerPath.length || !isRecord(section)) return otherFields;
  const remainingFields = unsetAt(section, innerPath.join('.'), lookup(below, key));
  const hasContent = Object.entries(remainingFields).some(
    ([name, value]) => name !== 'type' || value !== lookup(below, key)?.type,
  );
  return hasContent ? { ...otherFields, [key]: remainingFields } : otherFields;
}

/**
 * Returns the smallest layer that changes `below` into `above`.
 * @param {Fields} below
 * @param {Fields} above
 * @returns {Fields}
 */
export function findChanges(below, above) {
  return Object.fromEntries(
    Object.entries(above)
      .filter(([key, value]) => !isSame(lookup(below, key), value))
      .map(([key, value]) => {
        const valueBelow = lookup(below, key);
        const inside = isRecord(valueBelow) && isRecord(value) && valueBelow.type === value.type;
        return [
          key,
          inside
            ? { ...(value.type === undefined ? {} : { type: value.type }), ...findChanges(valueBelow, value) }
            : value,
        ];
      }),
  );
}

const isSame = (/** @type {unknown} */ a, /** @type {unknown} */ b) => a === b || spell(a) === spell(b);

/** Returns JSON with sorted keys, so that order does not matter. @param {unknown} value @returns {string} */
export const spell = (value) =>
  JSON.stringify(value, (_, inner) =>
    isRecord(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  ) ?? 'undefined';

/**
 * Returns the knobs in which two configs differ: single fields if both use the same union member, else the whole union
 * or list.
 * @param {Fields} oldConfig @param {Fields} newConfig @returns {{path: string, before: any, after: any}[]}
 */
export function findKnobDifferences(oldConfig, newConfig, path = '') {
  return [...new Set([...Object.keys(oldConfig), ...Object.keys(newConfig)])].flatMap((key) => {
    const [oldValue, newValue] = [lookup(oldConfig, key), lookup(newConfig, key)];
    const keyPath = path ? `${path}.${key}` : key;
    if (isSame(oldValue, newValue)) return [];
    return isAlike(oldValue, newValue)
      ? findKnobDifferences(oldValue, newValue, keyPath)
      : [{ path: keyPath, before: oldValue, after: newValue }];
  });
}

/**
 * Returns whether two values are compared by their fields: sections, equal union members, or lists of them.
 * @param {any} a @param {any} b @returns {boolean}
 */
function isAlike(a, b) {
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, i) => isAlike(item, b[i]));
  return isRecord(a) && isRecord(b) && a.type === b.type && a.name === b.name;
}

/**
 * Returns the paths that a layer writes, each as one knob. A union whose member is chosen by the layer is one path.
 * @param {Fields} fields
 * @param {Fields} below
 * @returns {string[]}
 */
export function listWrittenPaths(fields, below, path = '') {
  return Object.entries(fields).flatMap(([key, value]) => {
    const keyPath = path ? `${path}.${key}` : key;
    const valueBelow = lookup(below, key);
    if (!isRecord(value) || !isRecord(valueBelow)) return key === 'type' && path ? [] : [keyPath];
    return value.type !== undefined && value.type !== valueBelow.type
      ? [keyPath]
      : listWrittenPaths(value, valueBelow, keyPath);
  });
}
