/** Limits of a panel's y axis: chosen by hand or without outliers, and the number of values outside of them. Pure. */

/** @typedef {import('./figure.js').Line} Line */
/** @typedef {import('./figure.js').View} View */
/**
 * @typedef {{range: [number, number] | null, clip: [number, number] | null, isFlat: boolean}} Limits `range`: of the
 *   axis; `clip`: how far bands may stretch an axis that finds its own range
 */

/** Fraction of the values at each end that may be outliers. */
const TAIL_SHARE = 0.02;
/** Values are not outliers if their distance from the others is less than this multiple of the spread. */
const MAX_SPREADS = 1;

const selectDrawn = (/** @type {Line[]} */ lines) => lines.filter(({ role }) => role !== 'raw seed');

/** Returns the value that all curves have at all points, or null if values differ. @param {Line[]} lines */
function findFlatValue(lines) {
  /** @type {number | null} */
  let flat = null;
  const isSame = (/** @type {number | null} */ value) => {
    if (typeof value === 'number') flat ??= value;
    return typeof value !== 'number' || value === flat;
  };
  const isFlat = lines.every(({ series: { values, low, high } }) =>
    [values, low, high].every((numbers) => numbers?.every(isSame) ?? true),
  );
  return isFlat ? flat : null;
}

/**
 * Returns the range without outliers, or null if there are none.
 * @param {number[]} values finite
 * @returns {[number, number] | null}
 */
export function findRangeWithoutOutliers(values) {
  const sortedValues = [...values].sort((a, b) => a - b);
  if (sortedValues.length < 3) return null;
  const tailCount = Math.max(1, Math.floor(sortedValues.length * TAIL_SHARE));
  const [smallest, low, high, largest] = [
    sortedValues[0],
    sortedValues[tailCount],
    sortedValues[sortedValues.length - 1 - tailCount],
    sortedValues.at(-1) ?? 0,
  ];
  const spread = high - low || Math.abs(high) * 0.1 || 1;
  if (smallest >= low - MAX_SPREADS * spread && largest <= high + MAX_SPREADS * spread) return null;
  const margin = spread * 0.1;
  return [low - margin, high + margin];
}

/**
 * Returns the limits of the y axis. A constant is placed in the middle of a scale from 0, so that a small learning rate
 * is readable. A band from the smallest to the largest run is shown completely. Other bands may stretch the y axis
 * beyond the curves by half, because the interval of two seeds would hide everything else.
 * @param {Line[]} all @param {View} view @returns {Limits}
 */
export function findLimits(all, { logY, yRange, outliers, band }) {
  const lines = selectDrawn(all);
  if (yRange && (!logY || yRange[0] > 0)) return { range: yRange, clip: null, isFlat: false };
  const values = () => lines.flatMap(({ series }) => series.values).filter((value) => !logY || value > 0);
  if (outliers === false) {
    const axisRange = findRangeWithoutOutliers(logY ? values().map(Math.log10) : values());
    const range = /** @type {[number, number] | null} */ (
      axisRange && (logY ? axisRange.map((edge) => 10 ** edge) : axisRange)
    );
    if (range) return { range, clip: null, isFlat: false };
  }
  const flat = logY ? null : findFlatValue(lines);
  if (flat !== null)
    return { range: flat === 0 ? null : [Math.min(0, 2 * flat), Math.max(0, 2 * flat)], clip: null, isFlat: true };
  const isIntervalDrawn = band !== 'minmax' && lines.some(({ series: { low } }) => low?.length);
  if (logY || !isIntervalDrawn) return { range: null, clip: null, isFlat: false };
  const [from, to] = values().reduce(
    ([smallest, largest], value) => [Math.min(smallest, value), Math.max(largest, value)],
    [Infinity, -Infinity],
  );
  const margin = to > from ? (to - from) * 0.5 : Math.abs(to) || 1;
  return { range: null, clip: Number.isFinite(margin) ? [from - margin, to + margin] : null, isFlat: false };
}

/**
 * Returns the approximate number of labels on a log axis. Plotly would label every digit below two decades.
 * @param {Line[]} all @param {Limits} limits @param {number} usual
 */
export function logLabels(all, { range }, usual) {
  const [from, to] = range ?? findPositiveEnds(selectDrawn(all));
  return to > from && Math.log10(to / from) < 2 ? 3 : usual;
}

/** Returns the smallest and the largest positive value. @param {Line[]} lines @returns {[number, number]} */
function findPositiveEnds(lines) {
  let [smallest, largest] = [Infinity, 0];
  for (const { series } of lines)
    for (const value of series.values) {
      if (value > 0 && value < smallest) smallest = value;
      if (value > largest) largest = value;
    }
  return [smallest, largest];
}

/** Returns the y axis for Plotly's layout. @param {Limits} limits @param {boolean} logY */
export function makeYAxis({ range, clip, isFlat }, logY) {
  if (range) return { range: logY ? range.map(Math.log10) : range, autorange: false };
  if (isFlat) return { rangemode: 'nonnegative' };
  return clip ? { autorangeoptions: { clipmin: clip[0], clipmax: clip[1] } } : {};
}

/** Returns the number of values outside of a chosen range. @param {Line[]} lines @param {Limits} limits */
export function countOutside(lines, { range }) {
  if (!range) return 0;
  const isOut = (/** @type {number} */ value) => value < range[0] || value > range[1];
  return lines
    .filter(({ role = 'main' }) => role === 'main')
    .reduce((count, { series: { values } }) => count + values.filter(isOut).length, 0);
}

/** @type {WeakMap<object, Map<string, any>>} */
const possible = new WeakMap();

/**
 * Returns a series whose band is limited to the possible values of its metric, because the interval of few accuracies
 * can extend below 0. A curve with impossible values, such as percentages under the name of a fraction, keeps its band.
 * @template {import('./figure.js').Series} S @param {S} series @param {[number, number]} range @returns {S}
 */
export function withPossibleBand(series, [min, max]) {
  const { low, high, values } = series;
  if (!low || !high || !(Number.isFinite(min) || Number.isFinite(max))) return series;
  if (values.some((value) => value < min || value > max)) return series;
  const inside = (/** @type {number | null} */ value) => (value === null ? null : Math.min(max, Math.max(min, value)));
  const bandByKey = possible.get(series) ?? new Map();
  possible.set(series, bandByKey);
  const key = `${min} ${max}`;
  if (!bandByKey.has(key)) bandByKey.set(key, { ...series, low: low.map(inside), high: high.map(inside) });
  return bandByKey.get(key);
}
