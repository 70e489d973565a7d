/** Loads panels that are not on the screen with their curves, for files and reports. */
import { findMetricInfo } from '../../app/state.js';
import { fetchSeries } from '../../data/series.js';
import { makeLines, makeShape, makeEndShape } from './lines.js';
import { makeNotes, makeChartSettings } from './shown.js';
import { applyTuning } from './tuning.js';

/** @typedef {import('./panel.js').PanelView} PanelView */
/** @typedef {import('./lines.js').Looks} Looks */

/**
 * @param {string} metric @param {{view: PanelView, runs: string[], looks: Looks, names: Map<string, string>}} page
 * @param {number} points the maximum per line
 */
export async function loadPanel(metric, { view: pageView, runs, looks, names }, points) {
  const view = applyTuning(pageView, metric);
  const shape = makeShape(view, points);
  const single = { ...shape, groupBy: '', band: '' };
  const withSeeds = Boolean(view.groupBy && view.seeds);
  const [main, raw, seeds] = await Promise.all([
    fetchSeries(metric, runs, shape),
    view.smoothing > 0 ? fetchSeries(metric, runs, { ...shape, smoothing: 0, band: '' }) : [],
    withSeeds ? fetchSeries(metric, runs, single) : [],
  ]);
  const lines = makeLines({ main, raw, seeds, rawSeeds: [] }, view, looks, names);
  const about = findMetricInfo(metric);
  const shown = makeChartSettings(metric, view, about);
  return { metric, view, shown, lines, about, notes: makeNotes(main, lines, shown, view, runs.length) };
}

/**
 * Returns the same lines with their ends.
 * @param {string} metric @param {{view: PanelView, runs: string[], looks: Looks, names: Map<string, string>}} page
 */
export async function loadEnds(metric, { view, runs, looks, names }) {
  const main = await fetchSeries(metric, runs, makeEndShape(view));
  return makeLines({ main, raw: [], seeds: [], rawSeeds: [] }, { ...view, smoothing: 0, seeds: false }, looks, names);
}
