/** Axes over config fields and metrics of runs, for parallel coordinates and scatter plots. Pure. */
import { makeRunField, listMetrics } from './fields.js';
import { findDifferingFields } from './grouping.js';
import { formatValue } from '../text/format.js';
import { lookup } from '../lookup.js';

/**
 * `toPosition`: the position of a run from 0 (low) to 1 (high), or below 0 if it has no value.
 * @typedef {{key: string, title: string, toPosition: (run: Api.RunItem) => number, text: (run: Api.RunItem) => string,
 *   ticks: {position: number, text: string}[]}} Axis
 * @typedef {{isLog: boolean, toPosition: (value: any) => number, ticks: {position: number, text: string}[]}} Scale
 * @typedef {Record<string, [number, number]>} Brushes by key: from and to, as positions
 */

export const NO_VALUE = -0.1;
const MAX_TICKS = 12;
const LOG_FROM = 100;
const RESULTS = ['eval/accuracy', 'best:eval/accuracy', 'reward/mean'];
const MAX_FIELDS = 6;

/**
 * Returns the keys of possible axes: config fields that differ, and last and best values.
 * @param {Api.RunItem[]} runs
 */
export const listPossibleAxes = (runs) => [
  ...findDifferingFields(runs).map((path) => `config:${path}`),
  ...listMetrics(runs).flatMap((metric) => [
    metric,
    ...(runs.some(({ summary }) => lookup(summary?.best, metric)) ? [`best:${metric}`] : []),
  ]),
];

/** Returns the default axes: some fields that differ, and the results. @param {string[]} possible */
export const chooseUsualAxes = (possible) => [
  ...possible.filter((key) => key.startsWith('config:')).slice(0, MAX_FIELDS),
  ...RESULTS.filter((key) => possible.includes(key)),
];

/** @param {string} key @param {Api.RunItem[]} runs @returns {Axis} */
export function makeAxis(key, runs) {
  const field = makeRunField(key);
  const values = runs.map(field.read).filter((value) => value !== undefined && value !== null);
  const isNumeric = field.number || (values.length > 0 && values.every((value) => typeof value === 'number'));
  /** @type {Scale} */
  const scale = isNumeric ? makeNumberScale(values.filter(Number.isFinite)) : makeCategoryScale(runs.map(field.text));
  const readValue = isNumeric ? field.read : field.text;
  const isMissing = (/** @type {Api.RunItem} */ run) =>
    isNumeric ? !Number.isFinite(field.read(run)) : (field.read(run) ?? null) === null;
  return {
    key,
    title: field.title + (scale.isLog ? ' (log)' : ''),
    text: field.text,
    toPosition: (run) => (isMissing(run) ? NO_VALUE : scale.toPosition(readValue(run))),
    ticks: runs.some(isMissing) ? [...scale.ticks, { position: NO_VALUE, text: 'none' }] : scale.ticks,
  };
}

/** Returns a linear scale, or a logarithmic scale if positive values span two decades. @param {number[]} values */
function makeNumberScale(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isLog = low > 0 && high / low >= LOG_FROM;
  const transform = isLog ? Math.log : (/** @type {number} */ value) => value;
  const back = isLog ? Math.exp : (/** @type {number} */ value) => value;
  const [from, span] = [transform(low), transform(high) - transform(low)];
  const toPosition = (/** @type {number} */ value) => (span ? (transform(value) - from) / span : 0.5);
  const shares = span ? [0, 0.25, 0.5, 0.75, 1] : [0.5];
  const distinct = [...new Set(values)];
  const shownValues = distinct.length <= shares.length ? distinct : shares.map((share) => back(from + share * span));
  const ticks = values.length
    ? shownValues.map((value) => ({ position: toPosition(value), text: formatValue(value) }))
    : [];
  return { isLog, toPosition, ticks };
}

/** Returns a scale of texts in alphabetical order. If there are many, only some have labels. @param {string[]} texts */
function makeCategoryScale(texts) {
  const sortedTexts = [...new Set(texts.filter((text) => text !== '–'))].sort((a, b) =>
    a.localeCompare(b, 'en', { numeric: true }),
  );
  const toPosition = (/** @type {string} */ text) =>
    sortedTexts.length > 1 ? sortedTexts.indexOf(text) / (sortedTexts.length - 1) : 0.5;
  const every = Math.ceil(sortedTexts.length / MAX_TICKS);
  const ticks = sortedTexts.filter((_, i) => i % every === 0).map((text) => ({ position: toPosition(text), text }));
  return { isLog: false, toPosition, ticks };
}

/** Returns the runs inside all brushes. @param {Api.RunItem[]} runs @param {Axis[]} axes @param {Brushes} brushes */
export const filterBrushed = (runs, axes, brushes) =>
  runs.filter((run) =>
    axes.every(({ key, toPosition }) => {
      const range = lookup(brushes, key);
      return !range || (toPosition(run) >= range[0] && toPosition(run) <= range[1]);
    }),
  );
