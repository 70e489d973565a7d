/** Curves as the service sends them with `compact`, and as everything here reads them. */
import { lookup } from './lookup.js';

/** @typedef {Api.SeriesItem & {x: number[]}} Series */
/** @typedef {string} XKind of x axis: one of X_KINDS, or a metric */

export const X_KINDS = ['step', 'wall', 'tokens', 'samples', 'flops'];

/** Whether curves are drawn over a metric, which need not rise with the steps. @param {XKind} kind */
export const isMetricAxis = (kind) => !X_KINDS.includes(kind);

/** Units of the axes that count something. @type {Record<string, string>} */
const X_UNITS = { step: 'step', tokens: 'tokens', samples: 'samples', flops: 'FLOP' };

/** Unit of an axis, or its metric. @param {XKind} kind */
export const xUnitOf = (kind) => lookup(X_UNITS, kind) ?? kind;

/**
 * A curve with its steps and its places on the x axis written out.
 * @param {Api.SeriesItem} item of which each step is the distance to the one before
 * @returns {Series}
 */
export function expanded(item) {
  let step = 0;
  const steps = item.steps.map((distance) => {
    step += distance;
    return step;
  });
  return { ...item, steps, x: item.x ?? steps };
}
