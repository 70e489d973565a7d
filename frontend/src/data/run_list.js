/** The list of runs, which is loaded page by page and updated by the stream. */
import { useCallback, useEffect, useRef, useState } from '../dom.js';
import { get, getAll } from './api.js';
import { useLive } from './live.js';
import { useLoad, useThrottled } from './resource.js';

const PAGE = 100;
const MAX_PER_CALL = 200;
const SHOW_MS = 250;
const RUNS_PER_CALL = 200;

/**
 * @typedef {{key: string, items: Api.RunItem[], next: string | null, total: number,
 *   error: import('./api.js').ApiError | null, loading: boolean, loaded: boolean, loadedAt: number}} List
 */
/**
 * @typedef {List & {loadMore: () => void, reload: () => void,
 *   put: (run: Partial<Api.RunItem> & {id: string}) => void}} RunList
 */
/** @type {List} */
const EMPTY = { key: '', items: [], next: null, total: 0, error: null, loading: true, loaded: false, loadedAt: 0 };

/**
 * Returns the first `count` runs and the next cursor.
 * @param {import('./api.js').Parameters} parameters @param {number} count @param {AbortSignal} signal
 */
async function loadFirstRuns(parameters, count, signal) {
  /** @type {Api.RunItem[]} */
  let items = [];
  /** @type {string | null} */
  let next = null;
  let total = 0;
  do {
    const limit = Math.min(MAX_PER_CALL, Math.max(PAGE, count - items.length));
    /** @type {Api.RunPage} */
    const page = await get('/runs', { ...parameters, limit, cursor: next }, signal);
    items = [...items, ...page.items];
    next = page.next;
    total = page.total ?? total;
  } while (next && items.length < count);
  return { items, next, total };
}

/**
 * @param {import('./api.js').Parameters} parameters of GET /runs: sort, filters, include
 * @returns {RunList}
 */
export function useRuns(parameters) {
  const key = JSON.stringify(parameters);
  const [state, setState] = useState(EMPTY);
  const [round, setRound] = useState(0);
  const now = useRef(state);
  now.current = state;

  useEffect(() => {
    const abort = new AbortController();
    const count = now.current.items.length;
    setState((old) => ({ ...old, loading: true }));
    loadFirstRuns(parameters, count, abort.signal).then(
      ({ items, next, total }) => {
        if (abort.signal.aborted) return;
        // pages that were loaded meanwhile stay: the whole list is loaded again
        if (now.current.key === key && now.current.items.length > count) return setRound((n) => n + 1);
        setState({ key, items, next, total, error: null, loading: false, loaded: true, loadedAt: Date.now() });
      },
      (error) => {
        if (!abort.signal.aborted) setState((old) => ({ ...old, error, loading: false }));
      },
    );
    return () => abort.abort();
  }, [key, round]);

  const isFetching = useRef(false);
  const loadMore = useCallback(async () => {
    const { next, items, key: loadedKey } = now.current;
    if (!next || loadedKey !== key || isFetching.current) return; // a cursor belongs to its own list
    isFetching.current = true;
    let isStale = false;
    try {
      const page = await get('/runs', { ...parameters, limit: MAX_PER_CALL, cursor: next });
      isStale = now.current.items !== items && now.current.next !== next;
      if (!isStale)
        setState((old) => ({ ...old, items: withoutTwins([...old.items, ...page.items]), next: page.next }));
    } catch (error) {
      setState((old) => ({ ...old, error: /** @type {import('./api.js').ApiError} */ (error) }));
    } finally {
      isFetching.current = false;
    }
    if (isStale) newestLoadMore.current(); // the list was reloaded meanwhile: the next page must still be loaded
  }, [key]);
  const newestLoadMore = useRef(loadMore);
  newestLoadMore.current = loadMore;

  const reload = useCallback(() => setRound((n) => n + 1), []);
  /** Changed runs that are not shown yet, because thousands may change at once. */
  const changedRuns = useRef(/** @type {Map<string, Partial<Api.RunItem>>} */ (new Map()));
  const show = useCallback(() => {
    const changesById = changedRuns.current;
    changedRuns.current = new Map();
    const listedIds = new Set(now.current.items.map(({ id }) => id));
    if ([...changesById.keys()].some((id) => !listedIds.has(id))) reloadSoon();
    setState((old) => ({
      ...old,
      items: old.items.map((item) => (changesById.has(item.id) ? { ...item, ...changesById.get(item.id) } : item)),
    }));
  }, []);
  const put = useCallback((/** @type {Partial<Api.RunItem> & {id: string}} */ run) => {
    if (!changedRuns.current.size) setTimeout(show, SHOW_MS);
    changedRuns.current.set(run.id, { ...changedRuns.current.get(run.id), ...run });
  }, []);
  const reloadSoon = useThrottled(reload, 2000);
  useLive(['run'], (type, run) => {
    if (type === 'resync') reloadSoon();
    else put(run);
  });
  return { ...state, loadMore, reload, put };
}

/**
 * Returns runs by their ids, in this order, including archived and trashed ones.
 * @param {string[]} ids @param {import('./api.js').Parameters} params @param {AbortSignal} signal
 * @returns {Promise<{runs: Api.RunItem[], missing: string[]}>}
 */
export async function loadNamedRuns(ids, params, signal) {
  const batches = Array.from({ length: Math.ceil(ids.length / RUNS_PER_CALL) }, (_, n) =>
    ids.slice(n * RUNS_PER_CALL, (n + 1) * RUNS_PER_CALL),
  );
  const pages = await Promise.all(
    batches.map((batch) => getAll('/runs', { ...params, ids: batch, limit: RUNS_PER_CALL }, { signal })),
  );
  const runById = new Map(pages.flat().map((run) => [run.id, run]));
  return { runs: ids.flatMap((id) => runById.get(id) ?? []), missing: ids.filter((id) => !runById.has(id)) };
}

/**
 * Loads the runs that are missing in the list, such as old runs of a shared link or runs outside the filters.
 * @param {string[]} ids @param {Api.RunItem[]} items the loaded list
 * @returns {{runs: Api.RunItem[], missing: string[]}}
 */
export function useUnlistedRuns(ids, items) {
  const listedIds = new Set(items.map(({ id }) => id));
  const unlistedIds = ids.filter((id) => !listedIds.has(id));
  const { data } = useLoad(
    unlistedIds.length ? unlistedIds.join() : null,
    (signal) => loadNamedRuns(unlistedIds, {}, signal),
    {
      subject: 'unlisted runs',
    },
  );
  const loadedRuns = data ?? { runs: [], missing: [] };
  return {
    runs: loadedRuns.runs.filter(({ id }) => unlistedIds.includes(id)),
    missing: loadedRuns.missing.filter((id) => unlistedIds.includes(id)),
  };
}

/** @param {Api.RunItem[]} items */
const withoutTwins = (items) => [...new Map(items.map((item) => [item.id, item])).values()];
