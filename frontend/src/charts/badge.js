/** What a panel shows and what it does not: the numbers behind "can I trust this picture?". Pure. */
import { formatCount, formatValue, plural } from '../lib/text/format.js';

/**
 * @param {import('./figure.js').Series[]} series
 * @param {{smoothing: number, logX: boolean, logY: boolean, grouped: '' | 'variant' | 'group', requestedRuns: number,
 *   most: number, outside?: {values: number, isBandCut: boolean}, healthy?: (number | null)[] | null}} view
 *   `grouped`: what a line is the mean of; `requestedRuns`: runs that were asked for, `most`: how many are drawn at most
 *   `outside`: what lies beyond the y axis; `healthy`: the shaded band
 * @returns {{text: string, isWarning: boolean, title?: string}[]}
 */
export function badge(series, { smoothing, logX, logY, grouped, requestedRuns, most, outside, healthy }) {
  // Non-finite values of a mean belong to single runs and are not points of its line.
  const shown = sum(series, ({ values, non_finite }) => values.length + (grouped ? 0 : non_finite.length));
  const raw = sum(series, ({ raw_points }) => raw_points);
  const notFinite = sum(series, ({ non_finite }) => non_finite.length);
  const noLog = logY ? sum(series, ({ values }) => values.filter((value) => value <= 0).length) : 0;
  const noLogX = logX ? sum(series, ({ x }) => x.filter((value) => value <= 0).length) : 0;
  const expectedRuns = Math.min(requestedRuns, most);
  return [
    note(grouped ? `${plural(series.length, grouped)}${seeds(series)}` : plural(series.length, 'run')),
    note(pointsText(shown, raw, grouped !== '')),
    note(smoothing ? `smoothed ${smoothing}` : 'unsmoothed', smoothing > 0),
    ...(notFinite ? [note(`${formatCount(notFinite)} not finite`, true)] : []),
    ...(noLog ? [note(`${formatCount(noLog)} ≤ 0 not drawable`, true)] : []),
    ...(noLogX ? [note(`${plural(noLogX, 'point')} at x ≤ 0 not drawable`, true)] : []),
    ...(outside?.values ? [note(`${plural(outside.values, 'point')} outside the y range`, true)] : []),
    ...(outside?.isBandCut ? [note("band cut at the panel's edge", true)] : []),
    ...(healthy ? [{ ...note(healthyText(healthy)), title: 'Runs that learn usually stay in the green band' }] : []),
    ...(requestedRuns > most ? [note(`showing ${formatCount(most)} of ${plural(requestedRuns, 'run')}`, true)] : []),
    ...(!grouped && series.length < expectedRuns
      ? [note(`${plural(expectedRuns - series.length, 'run')} without data`)]
      : []),
  ];
}

const note = (/** @type {string} */ text, isWarning = false) => ({ text, isWarning });
/** @template T @param {T[]} items @param {(item: T) => number} of */
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

/** The green band in words. @param {(number | null)[]} band */
export function healthyText([low, high]) {
  if (low === null) return `green: healthy up to ${formatValue(high)}`;
  return high === null
    ? `green: healthy from ${formatValue(low)}`
    : `green: healthy ${formatValue(low)} to ${formatValue(high)}`;
}

/** @param {number} shown @param {number} raw @param {boolean} grouped */
function pointsText(shown, raw, grouped) {
  if (grouped) return `means at ${plural(shown, 'point')} from ${formatCount(raw)} values`;
  return shown < raw ? `${formatCount(shown)} of ${plural(raw, 'point')}` : `all ${plural(raw, 'point')}`;
}

function seeds(/** @type {import('./figure.js').Series[]} */ series) {
  const counts = series.flatMap(({ n }) => n ?? []);
  if (!counts.length) return '';
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  return low === high ? `, n ${high}` : `, n ${low}–${high}, faint where fewer`;
}
