/** Settings of single panels, which take the place of those of the page: log y, smoothing, range of y. Pure. */
import { json } from '../../lib/url_json.js';

/**
 * @typedef {{logY?: boolean, smoothing?: number, y?: [number, number]}} Tuning
 * @typedef {Record<string, Tuning>} Tunings by metric
 */

const MOST_SMOOTHING = 0.999;

const isNumber = (/** @type {unknown} */ value) => typeof value === 'number' && Number.isFinite(value);

/** @param {unknown} value */
function isTuning(value) {
  if (value === null || typeof value !== 'object') return false;
  const { logY, smoothing, y, ...others } = /** @type {Record<string, any>} */ (value);
  return (
    Object.keys(others).length === 0 &&
    (logY === undefined || typeof logY === 'boolean') &&
    (smoothing === undefined || (isNumber(smoothing) && smoothing >= 0 && smoothing <= MOST_SMOOTHING)) &&
    (y === undefined || (Array.isArray(y) && y.length === 2 && y.every(isNumber) && y[0] < y[1]))
  );
}

/** The parameter of the address. */
export const tunings = () =>
  json(
    /** @type {Tunings} */ ({}),
    (value) =>
      value !== null && typeof value === 'object' && !Array.isArray(value) && Object.values(value).every(isTuning),
  );

/**
 * The view of one panel.
 * @param {import('./panel.js').PanelView} view @param {string} metric
 */
export function viewOf(view, metric) {
  const own = tuningOf(view.tune, metric);
  const hasLogY = own.logY ?? view.log.includes('y');
  return {
    ...view,
    smoothing: own.smoothing ?? view.smoothing,
    log: [...(view.log.includes('x') ? ['x'] : []), ...(hasLogY ? ['y'] : [])],
    yRange: own.y ?? null,
  };
}

/** @param {Tunings | undefined} tune @param {string} metric @returns {Tuning} */
export const tuningOf = (tune, metric) => (tune && Object.hasOwn(tune, metric) ? tune[metric] : {});

/**
 * The settings of all panels after a change of one; `undefined` gives a setting back to the page.
 * @param {Tunings | undefined} tune @param {string} metric @param {Tuning} changes @returns {Tunings}
 */
export function tunedTo(tune, metric, changes) {
  const next = Object.fromEntries(
    Object.entries({ ...tuningOf(tune, metric), ...changes }).filter(([, value]) => value !== undefined),
  );
  const others = Object.entries(tune ?? {}).filter(([name]) => name !== metric);
  return Object.fromEntries(Object.keys(next).length ? [...others, [metric, next]] : others);
}
