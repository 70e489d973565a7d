/** Loading from the API in a component: data, error and age. Old data stays on screen while new data is loaded. */
import { useEffect, useRef, useState, useCallback } from '../dom.js';
import { get } from './api.js';
import { address } from '../lib/url.js';
import { useLive } from './live.js';

/**
 * @template T
 * @typedef {{data: T | undefined, error: import('./api.js').ApiError | null, loading: boolean, loadedAt: number,
 *   reload: () => void, put: (change: (data: T) => T) => void}} Resource
 */
/**
 * @template T
 * @typedef {{data: T | undefined, error: import('./api.js').ApiError | null, loading: boolean, loadedAt: number,
 *   subject: string | null}} State
 */

/** @type {{data: undefined, error: null, loading: true, loadedAt: 0}} */
const NOTHING = { data: undefined, error: null, loading: true, loadedAt: 0 };

/**
 * Runs `load(signal)` when `key` changes. With the same `subject`, the old data stays visible until the new data is
 * loaded. Another subject starts with a skeleton, and a `null` key loads nothing.
 * @template T
 * @param {string | null} key @param {(signal: AbortSignal) => Promise<T>} load
 * @param {{subject?: string | null}} [options]
 * @returns {Resource<T>}
 */
export function useLoad(key, load, { subject = key } = {}) {
  const [state, setState] = useState(/** @type {State<T>} */ ({ ...NOTHING, subject }));
  const [round, setRound] = useState(0);
  const latestLoad = useRef(load);
  latestLoad.current = load;

  useEffect(() => {
    if (key === null) return undefined;
    const abort = new AbortController();
    setState((old) => (old.subject === subject ? { ...old, loading: true } : { ...NOTHING, subject }));
    latestLoad.current(abort.signal).then(
      (data) => !abort.signal.aborted && setState({ data, error: null, loading: false, loadedAt: Date.now(), subject }),
      (error) => !abort.signal.aborted && setState((old) => ({ ...old, error, loading: false, subject })),
    );
    return () => abort.abort();
  }, [key, subject, round]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  const put = useCallback(
    (/** @type {(data: T) => T} */ change) =>
      setState((old) => (old.data === undefined ? old : { ...old, data: change(old.data) })),
    [],
  );
  const shownState = state.subject === subject ? state : { ...NOTHING, subject };
  return { ...shownState, loading: key !== null && shownState.loading, reload, put };
}

/**
 * Loads one address. `live`: the stream's event types after which it loads again, at most once per `every` ms.
 * @template {string} Path
 * @param {Path | null} path @param {import('./api.js').Parameters} [params]
 * @param {{live?: string[], concerns?: (data: any) => boolean, every?: number}} [options]
 * @returns {Resource<Api.Answer<Path>>}
 */
export function useGet(path, params, { live = [], concerns = () => true, every = 1000 } = {}) {
  const key = path === null ? null : address(path, params);
  const resource = useLoad(key, (signal) => get(/** @type {Path} */ (path), params, signal), { subject: path ?? '' });
  const reloadSoon = useThrottled(resource.reload, every);
  useLive(live, (type, data) => {
    if (key !== null && (type === 'resync' || concerns(data))) reloadSoon();
  });
  return resource;
}

/**
 * Returns a function that runs at most once per `every` milliseconds and never drops the last call.
 * @param {() => void} action @param {number} every
 */
export function useThrottled(action, every) {
  const timer = useRef(0);
  const last = useRef(0);
  const latestAction = useRef(action);
  latestAction.current = action;
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    timer.current = setTimeout(
      () => {
        timer.current = 0;
        last.current = Date.now();
        latestAction.current();
      },
      Math.max(0, last.current + every - Date.now()),
    );
  }, [every]);
}
