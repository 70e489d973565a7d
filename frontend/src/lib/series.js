/** Curves in the `compact` format of the service and in the format of this application. */
import { lookup } from './lookup.js';

/** @typedef {Api.SeriesItem & {x: number[]}} Series */
/** @typedef {string} XKind kind of x axis: one of X_KINDS, or a metric */

export const X_KINDS = ['step', 'wall', 'tokens', 'samples', 'flops'];

/** Returns whether the x axis is a metric, which need not rise with the steps. @param {XKind} kind */
export const isMetricAxis = (kind) => !X_KINDS.includes(kind);

/** Units of axes with counts. @type {Record<string, string>} */
const X_UNITS = { step: 'step', tokens: 'tokens', samples: 'samples', flops: 'FLOP' };

/** Returns the unit of an axis, or its metric. @param {XKind} kind */
export const findXUnit = (kind) => lookup(X_UNITS, kind) ?? kind;

/**
 * Returns a curve with complete lists of steps and x positions.
 * @param {Api.SeriesItem} item in which each step is the distance from the previous one
 * @returns {Series}
 */
export function expandSeries(item) {
  let step = 0;
  const steps = item.steps.map((distance) => {
    step += distance;
    return step;
  });
  return { ...item, steps, x: item.x ?? steps };
}
