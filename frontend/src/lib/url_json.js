/** A JSON value as one parameter of the address. */

/**
 * @template T @param {T} initial @param {(value: any) => boolean} [accepts]
 * @returns {import('./url.js').Codec<T>}
 */
export const json = (
  initial,
  accepts = (value) => value !== null && typeof value === 'object' && !Array.isArray(value),
) => ({
  initial,
  read: (text) => {
    try {
      const value = JSON.parse(text);
      return accepts(value) ? value : undefined;
    } catch {
      return undefined;
    }
  },
  write: JSON.stringify,
});
