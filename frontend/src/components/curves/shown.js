/** The view of a panel's figure, and the notes of its badge. Pure. */
import { makeBadge } from '../../charts/badge.js';
import { chooseBandToShade } from '../../charts/layout.js';
import { findLimits, countOutside } from '../../charts/limits.js';
import { MAX_RUNS } from '../../data/series.js';
import { findTuning } from './tuning.js';

/** @typedef {import('../../charts/figure.js').View} Shown */

/**
 * Returns the view of a figure without its theme.
 * @param {string} metric @param {import('./panel.js').PanelView} view @param {Api.MetricEntry | undefined} about
 * @returns {Shown}
 */
export const makeChartSettings = (metric, view, about) => ({
  metric,
  xKind: view.x,
  logX: view.log.includes('x'),
  logY: view.log.includes('y'),
  zoom: view.zoom,
  theme: {},
  healthy: about?.band,
  yRange: view.yRange,
  outliers: view.outliers,
  band: view.groupBy ? view.band : '',
  unit: readUnit(about),
});

/**
 * Returns the unit of a metric, or null if it adds nothing to the name.
 * @param {Api.MetricEntry | undefined} metricInfo
 */
const readUnit = (metricInfo) =>
  metricInfo && !['1', 'reward', ''].includes(metricInfo.unit) ? metricInfo.unit : null;

/**
 * Returns the notes on the data that a panel shows and omits.
 * @param {import('./lines.js').Series[]} series @param {import('./lines.js').Line[]} lines @param {Shown} shown
 * @param {import('./panel.js').PanelView} view @param {number} requestedRuns runs
 */
export const makeNotes = (series, lines, shown, view, requestedRuns) =>
  makeBadge(series, {
    smoothing: view.smoothing,
    isSmoothedApart: findTuning(view.tune, shown.metric).smoothing !== undefined,
    band: view.band,
    maxRuns: MAX_RUNS,
    logX: shown.logX,
    logY: shown.logY,
    grouped: !view.groupBy ? '' : view.groupBy === 'variant' ? 'variant' : 'group',
    requestedRuns,
    outside: countOutside(lines, findLimits(lines, shown)),
    healthy: series.length ? chooseBandToShade(shown) : null,
  });
