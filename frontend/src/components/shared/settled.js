/** Waits until a value that changes quickly, such as typed text, has settled. */
import { useEffect, useState } from '../../dom.js';

/**
 * Returns the last value that did not change for `pause` milliseconds.
 * @template T @param {T} value @param {number} pause @returns {T}
 */
export function useSettled(value, pause) {
  const [settledValue, setSettledValue] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettledValue(value), pause);
    return () => clearTimeout(timer);
  }, [value]);
  return settledValue;
}
