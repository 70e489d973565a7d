/**
 * Curves for panels. Requests of one frame are joined, loaded curves are not requested again, and live runs are
 * refreshed.
 */
import { useLayoutEffect, useRef, useState } from '../dom.js';
import { ApiError, get } from './api.js';
import { useLive } from './live.js';
import { useThrottled } from './resource.js';
import { seriesKey } from '../charts/figure.js';
import { expandSeries } from '../lib/series.js';

/**
 * The parameters of requested curves. `band` and `groupBy` are '' for single runs; `together`: the runs that share a
 * mean, because the service forms the groups and is called again if a run changes its group.
 * @typedef {{x: import('../lib/series.js').XKind, smoothing: number, groupBy: string, band: string, zoom: [number,
 *   number] | null, points?: number, together?: string, ends?: boolean}} Shape `ends`: include the end of each
 */

export const MAX_RUNS = 200;
const SERIES_PER_CALL = 200;
const METRICS_PER_CALL = 9;
const REFRESH_MS = 2000;

/** @typedef {import('../charts/figure.js').Series} Series */
/** @typedef {{resolve: (series: Series[]) => void, reject: (error: unknown) => void}} Waiter */
/** @typedef {{runs: string[], shape: Shape, metrics: Map<string, Waiter[]>}} Batch */
/** @type {Map<string, Batch>} */
const waitingBatches = new Map();
let timer = 0;

/**
 * Loads the series of one metric. Calls at nearly the same time share a request.
 * @param {string} metric
 * @param {string[]} runs
 * @param {Shape} shape
 * @returns {Promise<Series[]>}
 */
export function fetchSeries(metric, runs, shape) {
  return new Promise((resolve, reject) => {
    const key = JSON.stringify([runs, shape]);
    if (!waitingBatches.has(key)) waitingBatches.set(key, { runs, shape, metrics: new Map() });
    const { metrics } = /** @type {Batch} */ (waitingBatches.get(key));
    metrics.set(metric, [...(metrics.get(metric) ?? []), { resolve, reject }]);
    if (!timer) timer = setTimeout(sendBatches);
  });
}

function sendBatches() {
  timer = 0;
  const batches = [...waitingBatches.values()];
  waitingBatches.clear();
  for (const { runs, shape, metrics } of batches) {
    const atOnce = Math.max(1, Math.min(METRICS_PER_CALL, Math.floor(SERIES_PER_CALL / Math.max(1, runs.length))));
    const names = [...metrics.keys()];
    for (let start = 0; start < names.length; start += atOnce)
      send(names.slice(start, start + atOnce), runs, shape, metrics);
  }
}

/** @param {string[]} names @param {string[]} runs @param {Shape} shape @param {Batch['metrics']} metrics */
async function send(names, runs, shape, metrics) {
  const tell = (/** @type {(waiter: Waiter, name: string) => void} */ notify) => {
    for (const name of names) for (const waiter of metrics.get(name) ?? []) notify(waiter, name);
  };
  try {
    const answer = await get('/series', makeParameters(names, runs, shape));
    const series = answer.series.map(expandSeries);
    tell(({ resolve }, name) => resolve(series.filter(({ metric }) => metric === name)));
  } catch (error) {
    if (error instanceof ApiError && error.status === 422 && names.length > 1) {
      for (const name of names) send([name], runs, shape, metrics); // one metric is unknown: the others have curves
    } else tell(({ reject }) => reject(error));
  }
}

/** @param {string[]} metrics @param {string[]} runs @param {Shape} shape */
const makeParameters = (metrics, runs, { x, smoothing, groupBy, band, zoom, points = 500, ends }) => ({
  runs,
  metrics,
  x,
  max_points: points,
  smoothing: smoothing || undefined,
  group_by: groupBy,
  band,
  x_min: zoom?.[0],
  x_max: zoom?.[1],
  compact: true,
  ends: ends || undefined,
});

/**
 * Loads the curves of one metric for these runs, but only while `isEnabled`, i.e. while the panel is near the screen.
 * @param {string} metric @param {string[]} runs @param {Shape} shape @param {boolean} isEnabled
 * @returns {{series: Series[], loading: boolean, loaded: boolean, error: Error | null,
 *   retry: () => void}}
 */
export function useSeries(metric, runs, shape, isEnabled) {
  const drawnRuns = runs.slice(0, MAX_RUNS);
  const key = JSON.stringify([metric, shape, shape.groupBy ? drawnRuns : null]);
  const holder = useRef(makeEmptyHolder(''));
  const [, redraw] = useState(0);
  const show = () => redraw((n) => n + 1);

  const load = async () => {
    const currentHolder = holder.current;
    const missingRuns = drawnRuns.filter((run) => !currentHolder.requestedRuns.has(run));
    if (!isEnabled || !missingRuns.length) return;
    const requestedRuns = shape.groupBy ? drawnRuns : missingRuns;
    currentHolder.requestCount += 1;
    for (const run of requestedRuns) currentHolder.requestedRuns.add(run);
    currentHolder.pending += 1;
    show();
    await fill(
      currentHolder,
      fetchSeries(metric, requestedRuns, shape),
      currentHolder.requestCount,
      requestedRuns,
      Boolean(shape.groupBy),
    );
    currentHolder.pending -= 1;
    if (currentHolder === holder.current) show();
  };

  if (holder.current.key !== key) holder.current = makeEmptyHolder(key, holder.current);
  useLayoutEffect(() => {
    load();
  }, [key, drawnRuns.join(), isEnabled]);
  const refresh = useThrottled(load, REFRESH_MS);
  useLive(['points'], (type, data) => {
    if (type !== 'resync' && !drawnRuns.includes(data.run)) return;
    if (type === 'resync') holder.current.requestedRuns.clear();
    else holder.current.requestedRuns.delete(data.run);
    refresh();
  });

  const { seriesByKey, pending, loaded, error } = holder.current;
  const series = shape.groupBy ? [...seriesByKey.values()] : drawnRuns.flatMap((run) => seriesByKey.get(run) ?? []);
  return {
    series,
    loading: pending > 0,
    loaded,
    error,
    retry: () => {
      holder.current.requestedRuns.clear();
      load();
    },
  };
}

/**
 * The curves of a panel. Old curves stay until the new ones are loaded. `requestCount` numbers the requests, and
 * `numberByRun` has the number of each run's curve, so that answers older than the shown curve are dropped.
 * @typedef {{key: string, seriesByKey: Map<string, Series>, requestedRuns: Set<string>, requestCount: number,
 *   numberByRun: Map<string, number>, pending: number, loaded: boolean, error: Error | null}} Holder
 * @param {string} key @param {Holder} [old] @returns {Holder}
 */
const makeEmptyHolder = (key, old) => ({
  key,
  seriesByKey: old && isSameMetric(old.key, key) ? old.seriesByKey : new Map(),
  requestedRuns: new Set(),
  requestCount: 0,
  numberByRun: new Map(),
  pending: 0,
  loaded: false,
  error: null,
});

/** @param {string} a @param {string} b */
const isSameMetric = (a, b) => a !== '' && JSON.parse(a)[0] === JSON.parse(b)[0];

/**
 * @param {Holder} holder @param {Promise<Series[]>} promise @param {number} number of the request
 * @param {string[]} requestedRuns @param {boolean} isGrouped
 */
async function fill(holder, promise, number, requestedRuns, isGrouped) {
  const notOvertaken = () => requestedRuns.filter((run) => (holder.numberByRun.get(run) ?? 0) < number);
  try {
    const series = await promise;
    const currentRuns = notOvertaken();
    if (!currentRuns.length) return;
    for (const run of currentRuns) holder.numberByRun.set(run, number);
    const otherParts =
      isGrouped || !holder.loaded ? [] : [...holder.seriesByKey].filter(([run]) => !currentRuns.includes(run));
    const currentSeries = series
      .map((item) => /** @type {const} */ ([seriesKey(item), item]))
      .filter(([key]) => isGrouped || currentRuns.includes(key));
    holder.seriesByKey = new Map([...otherParts, ...currentSeries]);
    holder.loaded = true;
    holder.error = null;
  } catch (error) {
    const currentRuns = notOvertaken();
    if (!currentRuns.length) return;
    for (const run of currentRuns) holder.requestedRuns.delete(run);
    holder.error = /** @type {Error} */ (error);
  }
}
