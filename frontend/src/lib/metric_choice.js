/** Which metrics are drawn, as an address lists them: `key`, `all`, names of sections, names of metrics. Pure. */
import { KEY_METRICS, bySection, sectionOf } from './metrics.js';

/** @typedef {{section: string, metrics: string[]}} Section */

/** Key metrics that these runs have. @param {string[]} available */
export const keyMetricsOf = (available) => KEY_METRICS.filter((metric) => available.includes(metric));

/**
 * Sections of a choice: the key metrics on top, then whole sections or single metrics by name.
 * @param {string[]} available @param {string[]} chosen @returns {Section[]}
 */
export function chosenSections(available, chosen) {
  const keys = chosen.includes('key') ? keyMetricsOf(available) : [];
  const sectionMetrics = chosen.includes('all')
    ? available
    : available.filter((metric) => chosen.includes(sectionOf(metric)) || chosen.includes(metric));
  return [...(keys.length ? [{ section: 'key metrics', metrics: keys }] : []), ...bySection(sectionMetrics)];
}

/** The metrics of a choice, each once. @param {string[]} available @param {string[]} chosen */
export const chosenMetrics = (available, chosen) => [
  ...new Set(chosenSections(available, chosen).flatMap(({ metrics }) => metrics)),
];

/**
 * The choice after some metrics were added or taken away, in as few words as possible: whole sections by their names.
 * @param {string[]} available @param {string[]} chosen @param {string[]} metrics @param {boolean} on
 * @returns {string[]}
 */
export function withMetrics(available, chosen, metrics, on) {
  const keys = keyMetricsOf(available);
  const keepsKeys = chosen.includes('key') && (on || !metrics.some((metric) => keys.includes(metric)));
  const drawn = new Set(chosenMetrics(available, keepsKeys ? chosen.filter((name) => name !== 'key') : chosen));
  for (const metric of metrics) {
    if (on) drawn.add(metric);
    else drawn.delete(metric);
  }
  if (drawn.size === available.length) return ['all'];
  const names = bySection(available).flatMap(({ section, metrics: inside }) => {
    const shown = inside.filter((metric) => drawn.has(metric));
    return shown.length === inside.length ? [section] : shown;
  });
  return [...(keepsKeys ? ['key'] : []), ...names];
}
