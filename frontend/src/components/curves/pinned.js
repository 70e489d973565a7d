/** The pinned cursor of a page, which is stored in its address and moved and released by keys. */
import { useComputed, useEffect, useSignalEffect, useRef } from '../../dom.js';
import { useKeys } from '../../app/keys.js';
import { cursor, unpin, pin } from '../../charts/cursor.js';
import { moveCursor } from '../../charts/crosshair.js';
import { lookup } from '../../lib/lookup.js';

const WRITTEN_AFTER_MS = 300;

/** Keys of a pinned cursor. @type {import('../../app/keys.js').Keys} */
const KEYS = {
  ArrowLeft: { label: 'pinned cursor to the point before', run: () => moveCursor(-1) },
  ArrowRight: { label: 'pinned cursor to the next point', run: () => moveCursor(1) },
  Escape: { label: 'release the pinned cursor', run: unpin },
};

/**
 * Handles a key in a dialog, in which page keys are inactive, and returns whether the key was used.
 * @param {KeyboardEvent} event
 */
export function pressPinned(event) {
  const key = lookup(KEYS, event.key);
  if (!key || !cursor.peek()?.isPinned) return false;
  event.preventDefault();
  event.stopPropagation();
  key.run(event);
  return true;
}

/**
 * Synchronizes the pinned cursor and the address.
 * @param {{at: number | null}} view @param {(changes: {at: number | null}) => void} change
 */
export function usePinnedCursor(view, change) {
  const latest = useRef({ view, change });
  latest.current = { view, change };
  const isPinned = useComputed(() => cursor.value?.isPinned === true);
  useKeys(isPinned.value ? KEYS : {});
  // The last position on which cursor and address agreed. An address that is rendered late must not pin a released
  // cursor.
  const writtenX = useRef(/** @type {number | null} */ (null));
  useEffect(() => {
    if (view.at === writtenX.current) return;
    writtenX.current = view.at;
    if (view.at === null) unpin();
    else pin(view.at, cursor.peek()?.metric ?? '');
  }, [view.at]);
  const timer = useRef(0);
  useSignalEffect(() => {
    const x = cursor.value?.isPinned ? cursor.value.x : null;
    clearTimeout(timer.current);
    if (x === writtenX.current) return;
    timer.current = setTimeout(() => {
      writtenX.current = x;
      if (latest.current.view.at !== x) latest.current.change({ at: x });
    }, WRITTEN_AFTER_MS);
  });
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      unpin();
    },
    [],
  );
}
