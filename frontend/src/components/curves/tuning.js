/** Settings of single panels that override those of the page: log y, smoothing, range of y and size. Pure. */
import { json } from '../../lib/url_json.js';
import { lookup } from '../../lib/lookup.js';

/**
 * @typedef {{logY?: boolean, smoothing?: number, y?: [number, number],
 *   size?: [number, number]}} Tuning `size`: columns and rows, the most columns being the whole width
 * @typedef {Record<string, Tuning>} Tunings by metric
 */

const MAX_SMOOTHING = 0.999;
export const MAX_SIZE = 3;

const isNumber = (/** @type {unknown} */ value) => typeof value === 'number' && Number.isFinite(value);

const isSize = (/** @type {unknown} */ value) =>
  Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_SIZE;

/** @param {unknown} value */
function isTuning(value) {
  if (value === null || typeof value !== 'object') return false;
  const { logY, smoothing, y, size, ...unknownSettings } = /** @type {Record<string, any>} */ (value);
  return (
    Object.keys(unknownSettings).length === 0 &&
    (logY === undefined || typeof logY === 'boolean') &&
    (smoothing === undefined || (isNumber(smoothing) && smoothing >= 0 && smoothing <= MAX_SMOOTHING)) &&
    (y === undefined || (Array.isArray(y) && y.length === 2 && y.every(isNumber) && y[0] < y[1])) &&
    (size === undefined || (Array.isArray(size) && size.length === 2 && size.every(isSize)))
  );
}

/** Returns the codec of the parameter in the address. */
export const tunings = () =>
  json(
    /** @type {Tunings} */ ({}),
    (value) =>
      value !== null && typeof value === 'object' && !Array.isArray(value) && Object.values(value).every(isTuning),
  );

/**
 * Returns the view of one panel.
 * @param {import('./panel.js').PanelView} view @param {string} metric
 */
export function applyTuning(view, metric) {
  const tuning = findTuning(view.tune, metric);
  const hasLogY = tuning.logY ?? view.log.includes('y');
  return {
    ...view,
    smoothing: tuning.smoothing ?? view.smoothing,
    log: [...(view.log.includes('x') ? ['x'] : []), ...(hasLogY ? ['y'] : [])],
    yRange: tuning.y ?? null,
  };
}

/** @param {Tunings | undefined} tune @param {string} metric @returns {Tuning} */
export const findTuning = (tune, metric) => lookup(tune, metric) ?? {};

/**
 * Returns the settings of all panels after a change of one. `undefined` resets a setting to that of the page.
 * @param {Tunings | undefined} tune @param {string} metric @param {Tuning} changes @returns {Tunings}
 */
export function changeTuning(tune, metric, changes) {
  const next = Object.fromEntries(
    Object.entries({ ...findTuning(tune, metric), ...changes }).filter(([, value]) => value !== undefined),
  );
  const otherTunings = Object.entries(tune ?? {}).filter(([name]) => name !== metric);
  return Object.fromEntries(Object.keys(next).length ? [...otherTunings, [metric, next]] : otherTunings);
}

/**
 * Returns the number of columns and rows of a panel.
 * @param {Tunings | undefined} tune @param {string} metric @returns {[number, number]}
 */
export const findSize = (tune, metric) => findTuning(tune, metric).size ?? [1, 1];
