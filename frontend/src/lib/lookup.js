/**
 * Returns the value of an untrusted key, such as a metric's name. `object[key]` would also find properties of every
 * object, such as `constructor` and `__proto__`.
 * @param {Record<string, any> | null | undefined} object @param {string} key
 */
export const lookup = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : undefined);
