/** What Compare shows of its runs: verdicts, and the sections of charts. Pure. */
import { VERDICT_NAMES } from './verdicts.js';
import { KEY_METRICS, bySection, sectionOf } from '../metrics.js';

/**
 * The runs that have each verdict, the gravest first.
 * @param {Api.RunItem[]} runs @returns {{verdict: import('./verdicts.js').Verdict, runs: Api.RunItem[]}[]}
 */
export const verdictCounts = (runs) =>
  VERDICT_NAMES.map((verdict) => ({ verdict, runs: runs.filter((run) => run.verdict === verdict) })).filter(
    ({ runs }) => runs.length > 0,
  );

/**
 * Sections of a choice: the key metrics on top, then whole sections or single metrics by name.
 * @param {string[]} available @param {string[]} chosen `key`, names of sections, names of metrics
 * @returns {{section: string, metrics: string[]}[]}
 */
export function chosenSections(available, chosen) {
  const keys = chosen.includes('key') ? KEY_METRICS.filter((metric) => available.includes(metric)) : [];
  const sectionMetrics = available.filter((metric) => chosen.includes(sectionOf(metric)) || chosen.includes(metric));
  return [...(keys.length ? [{ section: 'key metrics', metrics: keys }] : []), ...bySection(sectionMetrics)];
}
