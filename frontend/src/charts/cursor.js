/** The position at which the panels of a page are read, either under the pointer or pinned. */
import { signal } from '../dom.js';

/**
 * @typedef {{x: number, metric: string, key: string | null, isPinned: boolean}} Cursor `x` in steps, seconds or tokens;
 *   `metric`: the panel that was pointed at; `key`: the line that was
 */

/** @type {import('../../vendor/signals.js').Signal<Cursor | null>} */
export const cursor = signal(null);

/** Moves the cursor to the pointer, unless it is pinned. @param {Omit<Cursor, 'isPinned'> | null} target */
export function point(target) {
  const current = cursor.peek();
  if (current?.isPinned) return;
  if (
    target === null
      ? current === null
      : current?.x === target.x && current.metric === target.metric && current.key === target.key
  )
    return;
  cursor.value = target && { ...target, isPinned: false };
}

/** Pins the cursor, whether or not it was pinned before. @param {number} x @param {string} metric */
export function pin(x, metric) {
  cursor.value = { x, metric, key: null, isPinned: true };
}

export function unpin() {
  cursor.value = null;
}
