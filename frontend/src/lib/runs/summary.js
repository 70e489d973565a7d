/** Runs as groups to be compared, and the table of their numbers. Pure. */
import { difference, spread } from './stats.js';
import { isNonFinite } from '../text/format.js';
import { VERDICT_NAMES } from './verdicts.js';
import { KEY_METRICS, bySection, sectionOf } from '../metrics.js';
import { scalesApart } from './comparable.js';

/** @typedef {import('./groups.js').Group} Group */

/**
 * Numbers of the summary.
 * @type {{key: string, title: string, of: (run: Api.RunItem) => number | string | undefined}[]}
 */
export const SUMMARY_FIELDS = [
  { key: 'eval/accuracy', title: 'final accuracy', of: (run) => run.summary?.last?.['eval/accuracy'] },
  {
    key: 'best:eval/accuracy',
    title: 'best accuracy',
    of: (run) => run.summary?.best?.['eval/accuracy']?.value,
  },
  { key: 'reward/accuracy', title: 'training accuracy', of: (run) => run.summary?.last?.['reward/accuracy'] },
  { key: 'reward/mean', title: 'reward', of: (run) => run.summary?.last?.['reward/mean'] },
  { key: 'length/mean', title: 'length, tokens', of: (run) => run.summary?.last?.['length/mean'] },
  { key: 'policy/entropy', title: 'entropy, nats', of: (run) => run.summary?.last?.['policy/entropy'] },
  { key: 'time/wall_seconds', title: 'time, s', of: (run) => run.summary?.last?.['time/wall_seconds'] },
];

/** @param {Api.RunItem[]} runs @param {(run: Api.RunItem) => unknown} of */
const finite = (runs, of) => runs.map(of).filter((value) => typeof value === 'number');

/**
 * One row per group: for each field the spread over its runs, how many values were not finite, and the difference to
 * the baseline group. Runs that are still training take part with their last value and are counted.
 * A difference of two scales is none: `apart` names the fields that make them two.
 * @param {Group[]} groups
 * @param {string} baseline name of a group
 * @param {(metric: string) => Api.MetricEntry | undefined} [about] entry of the catalog
 */
export function summaryRows(groups, baseline, about = () => undefined) {
  const base = groups.find(({ name }) => name === baseline);
  return groups.map(({ name, runs }) => ({
    name,
    runs: runs.length,
    verdicts: verdictCounts(runs),
    unfinished: runs.filter(({ status }) => status !== 'finished').length,
    cells: SUMMARY_FIELDS.map(({ key, of }) => {
      const apart = base ? scalesApart(key, about(key), [base.runs[0], runs[0]]) : [];
      return {
        key,
        ...spread(finite(runs, of)),
        notFinite: runs.map(of).filter(isNonFinite).length,
        apart,
        versus:
          base && base.name !== name && !apart.length ? difference(finite(runs, of), finite(base.runs, of)) : null,
      };
    }),
  }));
}

/**
 * The runs that have each verdict, the gravest first.
 * @param {Api.RunItem[]} runs @returns {{verdict: import('./verdicts.js').Verdict, runs: Api.RunItem[]}[]}
 */
export const verdictCounts = (runs) =>
  VERDICT_NAMES.map((verdict) => ({ verdict, runs: runs.filter((run) => run.verdict === verdict) })).filter(
    ({ runs }) => runs.length > 0,
  );

/** Fields of the summary for which any group has a value. @param {ReturnType<typeof summaryRows>} rows */
export const presentFields = (rows) =>
  SUMMARY_FIELDS.map((_, i) => i).filter((i) => rows.some(({ cells }) => cells[i].n > 0 || cells[i].notFinite > 0));

/**
 * Sections of a choice: the key metrics on top, then whole sections or single metrics by name.
 * @param {string[]} available @param {string[]} chosen `key`, names of sections, names of metrics
 * @returns {{section: string, metrics: string[]}[]}
 */
export function chosenSections(available, chosen) {
  const keys = chosen.includes('key') ? KEY_METRICS.filter((metric) => available.includes(metric)) : [];
  const rest = available.filter((metric) => chosen.includes(sectionOf(metric)) || chosen.includes(metric));
  return [...(keys.length ? [{ section: 'key metrics', metrics: keys }] : []), ...bySection(rest)];
}
