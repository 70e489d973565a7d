/** The events of a run, newest first. Older events are loaded on request. */
import { useEffect, useRef, useState } from '../dom.js';
import { get } from './api.js';
import { useLive } from './live.js';
import { useThrottled } from './resource.js';

const PAGE = 100;
/**
 * @typedef {{events: Map<string, Api.RunEvent>, older: string | null, error: Error | null, loaded: boolean,
 *   loadedAt: number}} History
 */
/** @type {History} */
const EMPTY = { events: new Map(), older: null, error: null, loaded: false, loadedAt: 0 };

/** @param {string} run @param {string | null} [cursor] */
const loadPage = (run, cursor) => get(`/runs/${run}/events`, { order: 'desc', limit: PAGE, cursor });

/**
 * Returns all events that are newer than the loaded ones, page by page until a known event.
 * @param {string} run @param {History['events']} events
 */
async function loadNewest(run, events) {
  /** @type {Api.RunEvent[]} */
  let items = [];
  /** @type {string | null} */
  let next = null;
  do {
    const nextPage = await loadPage(run, next);
    items = [...items, ...nextPage.items];
    next = nextPage.next;
  } while (next && events.size && !items.some(({ id }) => events.has(id)));
  return { items, next };
}

/** @param {History['events']} events @param {Api.RunEvent[]} items */
const addEvents = (events, items) =>
  new Map([...events, ...items.map((item) => /** @type {const} */ ([item.id, item]))]);

/**
 * @param {string} run
 * @returns {{data: Api.RunEvent[] | undefined, error: Error | null, loadedAt: number, reload: () => void, loadMore:
 *   (() => void) | null}}
 *   `more` loads the next older events, or is null if there are none
 */
export function useHistory(run) {
  const [state, setState] = useState(EMPTY);
  const now = useRef(state);
  const busy = useRef(false);
  const nextTask = useRef(/** @type {(() => Promise<void>) | null} */ (null));
  const update = (/** @type {Partial<History>} */ change) => {
    now.current = { ...now.current, ...change };
    setState(now.current);
  };
  const runGuarded = async (/** @type {() => Promise<void>} */ act) => {
    if (busy.current) {
      nextTask.current = act;
      return;
    }
    busy.current = true;
    try {
      await act();
    } catch (error) {
      update({ error: /** @type {Error} */ (error) });
    }
    busy.current = false;
    const next = nextTask.current;
    nextTask.current = null;
    if (next) runGuarded(next);
  };
  const reload = () =>
    runGuarded(async () => {
      const { events, older, loaded } = now.current;
      const { items, next } = await loadNewest(run, events);
      update({
        events: addEvents(events, items),
        older: loaded ? older : next,
        error: null,
        loaded: true,
        loadedAt: Date.now(),
      });
    });
  const loadOlder = () =>
    runGuarded(async () => {
      const { items, next } = await loadPage(run, now.current.older);
      update({ events: addEvents(now.current.events, items), older: next, error: null });
    });
  useEffect(() => {
    reload();
  }, [run]);
  const reloadSoon = useThrottled(reload, 1000);
  useLive(['event', 'run'], (type, data) => {
    if (type === 'resync' || [data.run, data.id].includes(run)) reloadSoon();
  });
  const { events, older, error, loaded, loadedAt } = state;
  const data = loaded ? [...events.values()].sort((a, b) => Number(b.id) - Number(a.id)) : undefined;
  return { data, error, loadedAt, reload, loadMore: older ? loadOlder : null };
}
