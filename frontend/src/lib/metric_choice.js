/** The choice of metrics in an address: `key`, `all`, names of sections, and names of metrics. Pure. */
import { KEY_METRICS, bySection, sectionOf } from './metrics.js';

/** @typedef {{section: string, metrics: string[]}} Section */

/** Returns the available key metrics. @param {string[]} available */
export const keyMetricsOf = (available) => KEY_METRICS.filter((metric) => available.includes(metric));

/**
 * Returns the sections of a choice: the key metrics first, then whole sections or single metrics by name.
 * @param {string[]} available @param {string[]} chosen @returns {Section[]}
 */
export function chosenSections(available, chosen) {
  const keys = chosen.includes('key') ? keyMetricsOf(available) : [];
  const sectionMetrics = chosen.includes('all')
    ? available
    : available.filter((metric) => chosen.includes(sectionOf(metric)) || chosen.includes(metric));
  return [...(keys.length ? [{ section: 'key metrics', metrics: keys }] : []), ...bySection(sectionMetrics)];
}

/** Returns the metrics of a choice without duplicates. @param {string[]} available @param {string[]} chosen */
export const chosenMetrics = (available, chosen) => [
  ...new Set(chosenSections(available, chosen).flatMap(({ metrics }) => metrics)),
];

/**
 * Returns the choice after metrics were added or removed, in as few words as possible, i.e. with names of whole
 * sections.
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
