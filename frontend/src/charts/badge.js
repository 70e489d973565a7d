/** Notes below a panel on the data that it shows and omits. Pure functions. */
import { lookup } from '../lib/lookup.js';
import { formatCount, formatValue, plural } from '../lib/text/format.js';

/**
 * `isUsual` marks a note that applies to most charts, so it is not repeated below each of them.
 * @typedef {{text: string, isUsual: boolean, isWarning: boolean, title?: string}} Note
 */

/** Meaning of a band, by its name in the address. @type {Record<string, string>} */
export const BAND_NAMES = {
  minmax: 'min to max',
  ci95: '95 % interval of the mean',
  std: 'standard deviation',
  stderr: 'standard error',
};

/**
 * @param {import('./figure.js').Series[]} series
 * @param {{smoothing: number, isSmoothedApart: boolean, logX: boolean, logY: boolean,
 *   grouped: '' | 'variant' | 'group', band: string, requestedRuns: number, maxRuns: number, outside?: number,
 *   healthy?: (number | null)[] | null}} view
 *   `isSmoothedApart`: smoothed differently from the page; `grouped`: the unit that a line averages; `band`: its kind;
 *   `requestedRuns`: number of requested runs; `maxRuns`: the limit of drawn runs; `outside`: values beyond the y axis;
 *   `healthy`: the shaded band
 * @returns {Note[]}
 */
export function makeBadge(series, view) {
  const { smoothing, isSmoothedApart, logX, logY, grouped, band, requestedRuns, maxRuns, outside, healthy } = view;
  // Non-finite values of a mean belong to single runs and are not points of its line.
  const pointCount = sum(series, ({ values, non_finite }) => values.length + (grouped ? 0 : non_finite.length));
  const raw = sum(series, ({ raw_points }) => raw_points);
  const notFinite = sum(series, ({ non_finite }) => non_finite.length);
  const noLog = logY ? sum(series, ({ values }) => values.filter((value) => value <= 0).length) : 0;
  const noLogX = logX ? sum(series, ({ x }) => x.filter((value) => value <= 0).length) : 0;
  const expectedRuns = Math.min(requestedRuns, maxRuns);
  const [fewestSeeds, mostSeeds] = countSeeds(series);
  return [
    makeUsualNote(plural(series.length, grouped || 'run')),
    ...(grouped && lookup(BAND_NAMES, band) ? [makeUsualNote(`band: ${lookup(BAND_NAMES, band)}`)] : []),
    ...(grouped && mostSeeds
      ? [fewestSeeds === mostSeeds ? makeUsualNote(`n ${mostSeeds}`) : makeUnusualNote(fewerText(series))]
      : []),
    makeUsualNote(pointsText(pointCount, raw, grouped !== '')),
    isSmoothedApart
      ? makeUnusualNote(smoothing ? `smoothed ${smoothing}` : 'unsmoothed')
      : makeUsualNote(smoothing ? `smoothed ${smoothing}` : 'unsmoothed'),
    ...(notFinite ? [makeWarning(`${formatCount(notFinite)} not finite`)] : []),
    ...(noLog ? [makeWarning(`${formatCount(noLog)} ≤ 0 not drawable`)] : []),
    ...(noLogX ? [makeWarning(`${plural(noLogX, 'point')} at x ≤ 0 not drawable`)] : []),
    ...(outside ? [makeWarning(`${plural(outside, 'point')} outside the y range`)] : []),
    ...(healthy ? [makeUsualNote(healthyText(healthy))] : []),
    ...(requestedRuns > maxRuns
      ? [makeWarning(`showing ${formatCount(maxRuns)} of ${plural(requestedRuns, 'run')}`)]
      : []),
    ...(!grouped && series.length < expectedRuns
      ? [makeUnusualNote(`${plural(expectedRuns - series.length, 'run')} without data`)]
      : []),
  ];
}

/** @param {string} text @returns {Note} */
const makeUsualNote = (text) => ({ text, isUsual: true, isWarning: false });
/** @param {string} text @returns {Note} */
const makeUnusualNote = (text) => ({ text, isUsual: false, isWarning: false });
/** @param {string} text @returns {Note} */
const makeWarning = (text) => ({ text, isUsual: false, isWarning: true });
/** @template T @param {T[]} items @param {(item: T) => number} measure */
const sum = (items, measure) => items.reduce((total, item) => total + measure(item), 0);

/** Returns a sentence about the healthy band. @param {(number | null)[]} band */
export function healthyText([low, high]) {
  if (low === null) return `green: healthy up to ${formatValue(high)}`;
  return high === null
    ? `green: healthy from ${formatValue(low)}`
    : `green: healthy ${formatValue(low)} to ${formatValue(high)}`;
}

/** @param {number} pointCount @param {number} raw @param {boolean} grouped */
function pointsText(pointCount, raw, grouped) {
  if (grouped) return `means at ${plural(pointCount, 'point')} from ${formatCount(raw)} values`;
  return pointCount < raw ? `${formatCount(pointCount)} of ${plural(raw, 'point')}` : `all ${plural(raw, 'point')}`;
}

/** Returns the smallest and the largest number of runs in a mean, over the points of one series. */
function findSeedRange(/** @type {import('./figure.js').Series} */ { n }) {
  return n?.length ? [Math.min(...n), Math.max(...n)] : [];
}

/**
 * Returns the smallest and the largest number of runs in a mean, over all series, or 0 without means.
 * @param {import('./figure.js').Series[]} series
 */
function countSeeds(series) {
  const counts = series.flatMap(findSeedRange);
  return counts.length ? [Math.min(...counts), Math.max(...counts)] : [0, 0];
}

/** @param {import('./figure.js').Series[]} series */
function fewerText(series) {
  const [fewestSeeds, mostSeeds] = countSeeds(series);
  const isFewerWithin = series.map(findSeedRange).some(([low, high]) => low < high);
  return `n ${fewestSeeds}–${mostSeeds}${isFewerWithin ? ', faint where fewer' : ''}`;
}
