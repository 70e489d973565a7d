/**
 * The table of a panel at one x: each line's newest recorded value, its difference from the baseline, and n. Pure.
 * Values are never interpolated.
 */
import { writeCsv, csvCell } from './text/csv.js';
import { formatDuration, formatShort, formatValue, formatGrouped } from './text/format.js';
import { isSparse } from './metrics.js';
import { isMetricAxis, findXUnit } from './series.js';
import { lookup } from './lookup.js';

/**
 * @typedef {import('../charts/figure.js').Line} Line
 * @typedef {import('../charts/figure.js').Series} Series
 * @typedef {{value: number | string, x: number, step: number, n?: number, low?: number | null, high?: number | null}}
 *   Recorded one point; a value that is not finite is written as in the API
 * @typedef {{key: string, name: string, look: import('./colours.js').Look, role: 'main' | 'seed', run: string | null,
 *   recorded: Recorded | null, smoothed: Recorded | null, total: number | null, isOlder: boolean, delta: number | null,
 *   isBaseline: boolean}} Row `recorded`: null if the line has no value at or before x; `total`: the number of runs
 *   that a mean has; `isOlder`: the value was recorded before x
 * @typedef {{x: number, rows: Row[], baseline: string | null, isBaselineMissing: boolean, isSmoothed: boolean}} Reading
 */

/**
 * Returns the index of the last ascending number that is not above `x`, or -1.
 * @param {number[]} sortedXs @param {number} x
 */
export function findLastAtOrBelow(sortedXs, x) {
  let [low, high] = [0, sortedXs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sortedXs[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * Returns the point of a series at the largest recorded x that is not above `x`, or null before the first point.
 * @param {Series} series @param {number} x @returns {Recorded | null}
 */
export function readAt(series, x) {
  const index = findLastAtOrBelow(series.x, x);
  const finite = index < 0 ? null : makePoint(series, index);
  const gap = findNewestGap(series, x);
  if (!gap) return finite;
  return !finite || gap.x > finite.x || (gap.x === finite.x && gap.step > finite.step) ? gap : finite;
}

/**
 * Returns the end of a curve that was requested with its end, or null if it has none.
 * @param {Series} series @returns {Recorded | null}
 */
function readEnd({ end, x, steps, runs, non_finite: nonFinite }) {
  if (!end) return null;
  const [lastX, lastStep] = [x.at(-1), steps.at(-1)].map((last) => last ?? nonFinite.at(-1)?.step ?? 0);
  const interval = { low: end.low, high: end.high };
  return { value: end.mean ?? 'NaN', x: lastX, step: lastStep, n: runs ? end.n : undefined, ...interval };
}

/** @param {Series} series @param {number} x @returns {Recorded | null} */
const readUpTo = (series, x) => (x === Infinity ? readEnd(series) : readAt(series, x));

/** @param {Series} series @param {number} index @returns {Recorded} */
const makePoint = ({ values, x, steps, n, low, high }, index) => ({
  value: values[index],
  x: x[index],
  step: steps[index],
  n: n?.[index],
  low: low?.[index],
  high: high?.[index],
});

/**
 * Returns the newest value at or before x that is not finite. For a mean, no run has a finite value there.
 * @param {Series} series @param {number} x @returns {Recorded | null}
 */
function findNewestGap({ gaps, non_finite: nonFinite }, x) {
  const pointsBefore = (gaps ?? nonFinite).filter((point) => (point.x ?? point.step) <= x);
  if (!pointsBefore.length) return null;
  const newestPoint = pointsBefore.reduce((a, b) => ((b.x ?? b.step) >= (a.x ?? a.step) ? b : a));
  return {
    value: gaps ? 'NaN' : newestPoint.value,
    x: newestPoint.x ?? newestPoint.step,
    step: newestPoint.step,
    n: gaps ? 0 : undefined,
  };
}

/**
 * Reads all lines of a panel at one x, sorted by value: the largest first, then values that are not finite, then lines
 * without a value.
 * @param {Line[]} lines @param {number} x Infinity reads the ends of lines that were requested with their ends
 * @param {string | null} [baseline] key of the baseline
 * @returns {Reading}
 */
export function readLines(lines, x, baseline = null) {
  const raw = new Map(lines.filter(isRaw).map((line) => [lineKey(line), line.series]));
  const isSmoothed = raw.size > 0;
  const shownLines = lines.filter((line) => !isRaw(line));
  const readings = shownLines.map((line) => {
    const smoothed = isSmoothed ? readUpTo(line.series, x) : null;
    const series = isSmoothed ? raw.get(lineKey(line)) : line.series;
    return { line, smoothed, recorded: series ? readUpTo(series, x) : null };
  });
  const base = readings.find(({ line }) => baseline !== null && lineKey(line) === baseline);
  const rows = readings.map(({ line, smoothed, recorded }) => ({
    key: lineKey(line),
    name: line.name,
    look: line.look,
    role: /** @type {'main' | 'seed'} */ (line.role ?? 'main'),
    run: line.series.run ?? null,
    recorded,
    smoothed,
    total: line.series.runs?.length ?? null,
    isOlder: recorded !== null && Number.isFinite(x) && recorded.x < x,
    delta: base && base.line !== line ? computeDifference(recorded, base.recorded) : null,
    isBaseline: base?.line === line,
  }));
  return {
    x,
    rows: rows.sort((a, b) => rankRow(b) - rankRow(a)),
    baseline: base?.line.name ?? null,
    isBaselineMissing: baseline !== null && !base,
    isSmoothed,
  };
}

const isRaw = (/** @type {Line} */ { role }) => role === 'raw' || role === 'raw seed';
const lineKey = (/** @type {Line} */ { key, series }) => key ?? series.run ?? series.group ?? series.name;

/** @param {Recorded | null} a @param {Recorded | null} b */
const computeDifference = (a, b) =>
  typeof a?.value === 'number' && typeof b?.value === 'number' ? a.value - b.value : null;

/** @type {Record<string, number>} */
const INFINITE_VALUES = { Infinity: Number.MAX_VALUE, '-Infinity': -Number.MAX_VALUE };

/**
 * Returns the sort key of a row. Sorting is stable, so lines with equal values stay in the order of the legend.
 * @param {Row} row
 */
function rankRow({ recorded, smoothed }) {
  const point = recorded ?? smoothed;
  if (!point) return -Infinity;
  return typeof point.value === 'number' ? point.value : (lookup(INFINITE_VALUES, point.value) ?? -Number.MAX_VALUE);
}

/** Returns a text such as `2 of 3` if runs of a mean are missing at this point. @param {Row} row */
export const countText = ({ recorded, total }) =>
  recorded?.n === undefined
    ? ''
    : total !== null && total > recorded.n
      ? `${recorded.n} of ${total}`
      : String(recorded.n);

/** Formats a difference with its sign. @param {number | null} delta */
export const deltaText = (delta) => (delta === null ? '' : `${delta > 0 ? '+' : ''}${formatValue(delta)}`);

/** Returns a position on the x axis in words. @param {import('./series.js').XKind} kind @param {number} x */
export function positionText(kind, x) {
  if (!Number.isFinite(x)) return 'at the end';
  if (kind === 'step') return `step ${formatGrouped(x)}`;
  if (isMetricAxis(kind)) return `${kind} ${formatValue(x)}`;
  return kind === 'wall' ? formatDuration(x) : `${formatShort(x)} ${findXUnit(kind)}`;
}

/** Returns the meaning of a value at the end, which is the same in the matrix. @param {string} metric */
export const endMeaning = (metric) => (isSparse(metric) ? 'last evaluation' : 'mean of the last 10 steps');

/** Returns half the width of a mean's 95 % interval, or null if it has none. @param {Recorded | null} point */
export const computeHalf = (point) =>
  typeof point?.low === 'number' && typeof point.high === 'number' ? (point.high - point.low) / 2 : null;

/** Text for lines without a value. */
export const NO_VALUE = 'no value yet';

/**
 * Returns the table for files and the clipboard, with full-precision numbers.
 * @param {Reading} reading @param {{metric: string, unit?: string | null, xKind: string, smoothing: number}} about
 * @returns {{head: string[], rows: unknown[][]}}
 */
export function makeTable({ x, rows, baseline, isSmoothed }, { metric, unit, xKind, smoothing }) {
  const isEnd = !Number.isFinite(x);
  const hasHalf = isEnd && rows.some(({ recorded }) => computeHalf(recorded) !== null);
  const head = [
    'line',
    unit ? `${metric} (${unit})` : metric,
    ...(hasHalf ? ['half of the 95 % interval'] : []),
    ...(isSmoothed ? [`smoothed ${smoothing}`] : []),
    ...(baseline === null ? [] : [`difference to ${baseline}`]),
    'n',
    'step',
    ...(xKind === 'step' ? [] : [xKind]),
    'read at',
    'note',
  ];
  const position = isEnd ? `at the end: ${endMeaning(metric)}` : `${xKind} ${x}`;
  return {
    head,
    rows: rows.map(({ name, recorded, smoothed, delta, isOlder, total }) => [
      name,
      recorded?.value ?? '',
      ...(hasHalf ? [computeHalf(recorded) ?? ''] : []),
      ...(isSmoothed ? [smoothed?.value ?? ''] : []),
      ...(baseline === null ? [] : [delta ?? '']),
      recorded?.n ?? '',
      recorded?.step ?? '',
      ...(xKind === 'step' ? [] : [recorded?.x ?? '']),
      position,
      recorded ? makeNote(recorded, isOlder, total) : NO_VALUE,
    ]),
  };
}

/** @param {Recorded} recorded @param {boolean} isOlder @param {number | null} total */
const makeNote = ({ n }, isOlder, total) =>
  [isOlder && 'recorded earlier', n !== undefined && total !== null && n < total && `${n} of ${total} runs`]
    .filter(Boolean)
    .join(', ');

/** @param {{head: string[], rows: unknown[][]}} table */
export const tableAsCsv = ({ head, rows }) => writeCsv(head, rows);

/** Returns a table as text to paste into a spreadsheet or a note. @param {{head: string[], rows: unknown[][]}} table */
export const tableAsText = ({ head, rows }) =>
  [head, ...rows].map((row) => row.map((cell) => csvCell(cell)).join('\t')).join('\n');

/**
 * Returns the points of all visible lines for a file, with one row each.
 * @param {{lines: Line[], metric: string}[]} panels @param {string} xKind
 */
export function curvesAsCsv(panels, xKind) {
  const head = ['line', 'kind', 'metric', 'step', xKind === 'step' ? 'x' : xKind, 'value', 'n', 'low', 'high'];
  const lines = panels.flatMap((panel) => panel.lines.map((line) => ({ ...line, metric: panel.metric })));
  const rows = lines.flatMap(({ series, name, metric, role = 'main' }) => {
    const kind = role === 'main' ? (series.runs ? 'mean' : 'run') : role;
    const gaps = series.gaps ?? series.non_finite;
    const points = [
      ...series.values.map((value, i) => [
        series.x[i],
        [series.steps[i], series.x[i], value, series.n?.[i], series.low?.[i], series.high?.[i]],
      ]),
      ...gaps.map(({ step, x, value }) => [x ?? step, [step, x ?? step, value, undefined, undefined, undefined]]),
    ];
    return points
      .sort(([a], [b]) => Number(a) - Number(b))
      .map(([, cells]) => [name, kind, metric, .../** @type {unknown[]} */ (cells)]);
  });
  return writeCsv(head, rows);
}
