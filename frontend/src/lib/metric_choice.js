/** The choice of metrics in an address: `key`, `all`, names of sections, and names of metrics. Pure. */
import { KEY_METRICS, groupBySection, findSection } from './metrics.js';

/** @typedef {{section: string, metrics: string[]}} Section */

/** Returns the available key metrics. @param {string[]} available */
export const listKeyMetrics = (available) => KEY_METRICS.filter((metric) => available.includes(metric));

/**
 * Returns the sections of a choice: the key metrics first, then whole sections or single metrics by name.
 * @param {string[]} available @param {string[]} chosenNames @returns {Section[]}
 */
export function chooseSections(available, chosenNames) {
  const keys = chosenNames.includes('key') ? listKeyMetrics(available) : [];
  const sectionMetrics = chosenNames.includes('all')
    ? available
    : available.filter((metric) => chosenNames.includes(findSection(metric)) || chosenNames.includes(metric));
  return [...(keys.length ? [{ section: 'key metrics', metrics: keys }] : []), ...groupBySection(sectionMetrics)];
}

/** Returns the metrics of a choice without duplicates. @param {string[]} available @param {string[]} chosenNames */
export const chooseMetrics = (available, chosenNames) => [
  ...new Set(chooseSections(available, chosenNames).flatMap(({ metrics }) => metrics)),
];

/**
 * Returns the choice after metrics were added or removed, in as few words as possible, i.e. with names of whole
 * sections.
 * @param {string[]} available @param {string[]} chosenNames @param {string[]} metrics @param {boolean} isShown
 * @returns {string[]}
 */
export function withMetrics(available, chosenNames, metrics, isShown) {
  const keys = listKeyMetrics(available);
  const keepsKeys = chosenNames.includes('key') && (isShown || !metrics.some((metric) => keys.includes(metric)));
  const drawnMetrics = new Set(
    chooseMetrics(available, keepsKeys ? chosenNames.filter((name) => name !== 'key') : chosenNames),
  );
  for (const metric of metrics) {
    if (isShown) drawnMetrics.add(metric);
    else drawnMetrics.delete(metric);
  }
  if (drawnMetrics.size === available.length) return ['all'];
  const names = groupBySection(available).flatMap(({ section, metrics: inside }) => {
    const shownMetrics = inside.filter((metric) => drawnMetrics.has(metric));
    return shownMetrics.length === inside.length ? [section] : shownMetrics;
  });
  return [...(keepsKeys ? ['key'] : []), ...names];
}
