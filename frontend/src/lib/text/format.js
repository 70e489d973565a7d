/**
 * Formats of numbers, times and sizes. Every function accepts the API's values, including `null` and non-finite
 * strings.
 */
import { lookup } from '../lookup.js';

const NONE = '–';
/** @type {Record<string, string>} */
const SPELLED = { NaN: 'NaN', Infinity: '∞', '-Infinity': '−∞' };

/**
 * Returns whether a value is the API's text for a number that is not finite.
 * @param {unknown} value @returns {value is string}
 */
export const isNonFinite = (value) => typeof value === 'string' && Object.hasOwn(SPELLED, value);

const withMinusSign = (/** @type {string} */ text) => text.replaceAll('-', '−');

/**
 * Returns a metric value with at most about four significant digits.
 * @param {number | string | null | undefined} value
 */
export function formatValue(value) {
  if (value === null || value === undefined) return NONE;
  if (isNonFinite(value)) return lookup(SPELLED, value);
  if (typeof value !== 'number') return String(value);
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e6 || size < 1e-3) return formatExponential(value);
  if (Number.isInteger(value)) return withMinusSign(formatGrouped(value));
  return withMinusSign(value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3));
}

const formatExponential = (/** @type {number} */ value) =>
  withMinusSign(
    value
      .toExponential(2)
      .replace('e+', 'e')
      .replace(/\.?0+e/, 'e'),
  );

/** Returns an integer with thin spaces between thousands. @param {number} value */
export const formatGrouped = (value) =>
  Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, '\u202f');

/** @param {number | null | undefined} value */
export const formatCount = (value) => (value === null || value === undefined ? NONE : formatGrouped(value));

/** @param {number | null | undefined} share 0-1 */
export const formatPercent = (share, digits = 0) =>
  typeof share === 'number' ? `${withMinusSign((share * 100).toFixed(digits))} %` : NONE;

/** @type {[number, string][]} */
const THOUSANDS = [
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
];

/** Returns large counts in short form: 1.2 k, 3.4 M. @param {number | null | undefined} value */
export function formatShort(value) {
  if (typeof value !== 'number') return NONE;
  for (const [size, letter] of THOUSANDS) {
    if (Math.abs(value) >= size) return `${formatTrimmed(value / size)} ${letter}`;
  }
  return formatTrimmed(value);
}

const formatTrimmed = (/** @type {number} */ value) => withMinusSign(Number(value.toPrecision(3)).toString());

/** @type {[number, string][]} */
const BYTES = [
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB'],
];

/** @param {number | null | undefined} bytes */
export function formatBytes(bytes) {
  if (typeof bytes !== 'number') return NONE;
  for (const [size, unit] of BYTES) {
    if (bytes >= size) return `${formatTrimmed(bytes / size)} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

/** Returns bytes per second as text. @param {number | null | undefined} rate */
export const formatRate = (rate) => (typeof rate === 'number' ? `${formatBytes(rate)}/s` : NONE);

/** Returns a duration in its two largest units: `2 h 05 min`. @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds)) return NONE;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const wholeSeconds = Math.round(seconds);
  if (wholeSeconds < 60) return `${wholeSeconds} s`;
  if (wholeSeconds < 3600) return `${Math.floor(wholeSeconds / 60)} min ${padTwo(wholeSeconds % 60)} s`;
  if (wholeSeconds < 86_400)
    return `${Math.floor(wholeSeconds / 3600)} h ${padTwo(Math.floor((wholeSeconds % 3600) / 60))} min`;
  return `${Math.floor(wholeSeconds / 86_400)} d ${Math.floor((wholeSeconds % 86_400) / 3600)} h`;
}

/** @type {[number, string][]} largest value in seconds, unit */
const TIME_UNITS = [
  [90, 's'],
  [5400, 'min'],
  [172_800, 'h'],
  [Infinity, 'd'],
];
const SECONDS_IN = { s: 1, min: 60, h: 3600, d: 86_400 };

/** Returns the unit in which a duration has few digits. @param {number} seconds */
const chooseTimeUnit = (seconds) =>
  /** @type {keyof typeof SECONDS_IN} */ (TIME_UNITS.find(([limit]) => seconds < limit)?.[1] ?? 'd');

/** Smallest number in the larger unit at the lower end of a range. */
const MIN_IN_LARGER_UNIT = 0.1;

/**
 * Returns an estimated duration in the unit of its longer end: `3.2 – 5.8 min`, `0.3 – 4.1 h`, `up to 5 h`, or one
 * number if both ends have the same text. A line breaks only after the dash.
 * @param {number | null | undefined} low seconds @param {number | null | undefined} high seconds
 */
export function formatDurationRange(low, high) {
  if (typeof low !== 'number' || typeof high !== 'number') return NONE;
  const unit = chooseTimeUnit(high);
  const [from, to] = [low, high].map((seconds) => Number((seconds / SECONDS_IN[unit]).toPrecision(2)));
  if (from === to) return `${to}\u00a0${unit}`;
  return from < MIN_IN_LARGER_UNIT
    ? `up to\u00a0${to}\u00a0${unit}`
    : `${Number(from.toPrecision(from < 1 ? 1 : 2))}\u00a0– ${to}\u00a0${unit}`;
}

/** Returns an amount of money without its currency. @param {number} amount */
export const formatMoney = (amount) => (amount && amount < 0.01 ? '< 0.01' : amount.toFixed(2));

const padTwo = (/** @type {number} */ n) => String(n).padStart(2, '0');

/**
 * Returns the age of a time: `just now`, `12 s ago`, `3 h ago`, or the date after a week.
 * @param {string | number | null | undefined} time
 */
export function formatAgo(time, now = Date.now()) {
  if (!time) return NONE;
  const seconds = (now - new Date(time).getTime()) / 1000;
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 7 * 86_400) return `${Math.floor(seconds / 86_400)} d ago`;
  return formatTime(time).slice(0, 10);
}

/**
 * Returns the local date and time in sortable form: `2026-11-21 09:40:12`.
 * @param {string | number | null | undefined} time
 */
export function formatTime(time) {
  if (!time) return NONE;
  const moment = new Date(time);
  const date = [moment.getFullYear(), padTwo(moment.getMonth() + 1), padTwo(moment.getDate())].join('-');
  return `${date} ${[moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(padTwo).join(':')}`;
}

/** Returns a count with its noun: `1 run`, `3 runs`. @param {number} count @param {string} noun */
export const plural = (count, noun, many = `${noun}s`) => `${formatCount(count)} ${count === 1 ? noun : many}`;

/** Returns the first names of a list and the number of the others. @param {string[]} names @param {number} limit */
export const listSome = (names, limit) =>
  names.length > limit + 1 ? `${names.slice(0, limit).join(', ')} and ${names.length - limit} more` : names.join(', ');
