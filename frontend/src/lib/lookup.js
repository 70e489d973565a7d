/**
 * The value of a key that came from outside: an address, a metric's name. `object[key]` would also find what every
 * object has, such as `constructor` and `__proto__`.
 * @param {Record<string, any> | null | undefined} object @param {string} key
 */
export const lookup = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : undefined);
