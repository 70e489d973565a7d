/** The lines of a panel: groups or runs, with raw lines behind smoothed ones and seeds behind groups. */
import { findMetricInfo } from '../../app/state.js';
import { useSeries } from '../../data/series.js';
import { seriesKey } from '../../charts/figure.js';
import { withPossibleBand } from '../../charts/limits.js';
import { findPossibleRange } from '../../lib/metrics.js';

/** @typedef {import('./panel.js').PanelView} PanelView */
/** @typedef {Map<string, import('../../lib/colours.js').Look>} Looks */
/** @typedef {import('../../charts/figure.js').Line} Line */
/** @typedef {import('../../charts/figure.js').Series} Series */
/** @typedef {ReturnType<typeof useSeries>} Loaded */

/** @param {PanelView} view @param {number} points @returns {import('../../data/series.js').Shape} */
export const makeShape = ({ x, smoothing, groupBy, band, zoom }, points) => ({
  x,
  smoothing,
  groupBy,
  band: groupBy && band !== 'none' ? band : '',
  zoom,
  points,
});

/**
 * Returns a key for the grouping of runs that does not depend on group names: the index of the first run of each run's
 * group.
 * @param {string[]} runs @param {Map<string, string>} names
 */
function makeGroupingKey(runs, names) {
  const groups = runs.map((run) => names.get(`group:${run}`));
  const firsts = new Map(groups.map((group, i) => /** @type {const} */ ([group, i])).reverse());
  return groups.map((group) => firsts.get(group)).join();
}

const FEWEST_POINTS = 10;

/**
 * Returns the request for the ends of curves, which does not depend on the panel's settings.
 * @param {PanelView} view
 */
export const makeEndShape = ({ groupBy }) => ({
  ...makeShape({ x: 'step', smoothing: 0, groupBy, band: 'none', zoom: null, log: [] }, FEWEST_POINTS),
  ends: true,
});

/**
 * Returns the lines of a panel with their ends, which equal those of the matrix.
 * @param {string} metric @param {string[]} runs @param {PanelView} view @param {boolean} isEnabled @param {Looks} looks
 * @param {Map<string, string>} names @returns {{loaded: boolean, lines: Line[]}}
 */
export function useEnds(metric, runs, view, isEnabled, looks, names) {
  const shape = { ...makeEndShape(view), together: view.groupBy && makeGroupingKey(runs, names) };
  const main = useSeries(metric, runs, shape, isEnabled);
  const seeds = useSeries(
    metric,
    runs,
    makeEndShape({ ...view, groupBy: '' }),
    isEnabled && Boolean(view.groupBy && view.seeds),
  );
  const series = { main: main.series, raw: [], seeds: seeds.series, rawSeeds: [] };
  return { loaded: main.loaded, lines: makeLines(series, { ...view, smoothing: 0 }, looks, names) };
}

/**
 * @param {string} metric @param {string[]} runs @param {PanelView} view
 * @param {{enabled: boolean, points: number}} load nothing is loaded unless `enabled`; `points`: the maximum per line
 * @param {Looks} looks @param {Map<string, string>} names
 * @returns {{main: ReturnType<typeof useSeries>, all: Line[]}}
 */
export function useLines(metric, runs, view, { enabled, points }, looks, names) {
  const shape = { ...makeShape(view, points), together: view.groupBy && makeGroupingKey(runs, names) };
  const [main, raw] = useSmoothed(metric, runs, shape, enabled);
  const single = { ...shape, groupBy: '', band: '', together: '' };
  const [seeds, rawSeeds] = useSmoothed(metric, runs, single, enabled && Boolean(view.groupBy && view.seeds));
  return {
    main,
    all: makeLines(
      { main: main.series, raw: raw.series, seeds: seeds.series, rawSeeds: rawSeeds.series },
      view,
      looks,
      names,
    ),
  };
}

/**
 * Returns the curves and the raw curves behind them, which are equal without smoothing. The raw curves are kept when
 * the smoothing changes.
 * @param {string} metric @param {string[]} runs @param {import('../../data/series.js').Shape} shape
 * @param {boolean} isEnabled @returns {[Loaded, Loaded]}
 */
function useSmoothed(metric, runs, shape, isEnabled) {
  const isSmooth = shape.smoothing > 0;
  const raw = useSeries(metric, runs, { ...shape, smoothing: 0 }, isEnabled);
  const smooth = useSeries(metric, runs, shape, isEnabled && isSmooth);
  if (!isSmooth) return [raw, raw];
  return [smooth.series.length || smooth.error ? smooth : { ...smooth, series: raw.series }, raw];
}

/**
 * @param {{main: Series[], raw: Series[], seeds: Series[], rawSeeds: Series[]}} series
 * @param {Pick<PanelView, 'smoothing' | 'groupBy' | 'seeds'>} view @param {Looks} looks
 * @param {Map<string, string>} names @returns {Line[]}
 */
export function makeLines({ main, raw, seeds, rawSeeds }, view, looks, names) {
  const groupOfRun = (/** @type {string | null | undefined} */ run) => names.get(`group:${run}`);
  const keyHere = (/** @type {Series} */ item) =>
    item.run ? item.run : (groupOfRun(item.runs?.[0]) ?? seriesKey(item));
  /**
   * @param {Series[]} items @param {Line['role']} role
   * @param {(item: Series) => string | undefined} [findKey] key of its look
   */
  const lines = (items, role, findKey = keyHere) =>
    items.flatMap((item) => {
      const look = looks.get(findKey(item) ?? '');
      if (!look) return [];
      const series = withPossibleBand(item, findPossibleRange(findMetricInfo(item.metric)));
      return [{ series, key: keyHere(item), name: names.get(keyHere(item)) ?? item.name, look, role }];
    });
  return [
    ...lines(main, 'main'),
    ...(view.smoothing > 0 ? lines(raw, 'raw') : []),
    ...(view.groupBy && view.seeds ? lines(seeds, 'seed', (item) => groupOfRun(item.run)) : []),
    ...(view.groupBy && view.seeds && view.smoothing > 0
      ? lines(rawSeeds, 'raw seed', (item) => groupOfRun(item.run))
      : []),
  ];
}
