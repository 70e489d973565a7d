/**
 * Keyboard shortcuts. `useKeys({ j: { label: 'next row', run } })` enables keys for the life of a component, and the
 * help dialog lists the enabled ones. Keys do nothing while a field or a dialog has the focus, except Escape in a
 * field.
 */
import { signal, useLayoutEffect, useRef } from '../dom.js';
import { lookup } from '../lib/lookup.js';

/** @typedef {Record<string, {label: string, run: (event: KeyboardEvent) => void}>} Keys */

/** @type {import('../../vendor/signals.js').Signal<{current: Keys}[]>} */
export const layers = signal([]);

/** @param {Keys} keys key as in `KeyboardEvent.key` */
export function useKeys(keys) {
  const latestKeys = useRef(keys);
  latestKeys.current = keys;
  useLayoutEffect(() => {
    // The keys are enabled with the first paint, because a user who sees the page may press one.
    layers.value = [...layers.peek(), latestKeys];
    return () => {
      layers.value = layers.peek().filter((layer) => layer !== latestKeys);
    };
  }, []);
}

/** @param {EventTarget | null} target @returns {target is HTMLElement} */
const isTyping = (target) =>
  target instanceof HTMLElement &&
  target.matches('input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]');

function press(/** @type {KeyboardEvent} */ event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (document.querySelector('dialog[open]')) return;
  const layer = layers.peek().findLast(({ current }) => lookup(current, event.key));
  if (!layer) return;
  event.preventDefault();
  lookup(layer.current, event.key).run(event);
}

export function startKeys() {
  addEventListener('keydown', press);
}
