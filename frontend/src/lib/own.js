/**
 * What an object holds under a key that came from outside: an address, a metric's name. `object[key]` would also find
 * what every object has, such as `constructor`.
 * @param {Record<string, any> | undefined} object @param {string} key
 */
export const own = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : undefined);
