/** The verdicts of the diagnosis as words, icons and colours, and the onsets in charts. Pure. */

/** @typedef {NonNullable<Api.RunItem['verdict']>} Verdict */

/** @type {Record<Verdict, {title: string, icon: string, tone: 'good' | 'warn' | 'bad' | 'quiet'}>} */
export const VERDICTS = {
  collapsed: { title: 'Collapsed', icon: 'cross', tone: 'bad' },
  declining: { title: 'Declining', icon: 'warn', tone: 'warn' },
  never_learned: { title: 'Never learned', icon: 'cross', tone: 'bad' },
  recovered: { title: 'Recovered', icon: 'warn', tone: 'warn' },
  healthy: { title: 'Healthy', icon: 'check', tone: 'good' },
  inconclusive: { title: 'No verdict', icon: 'circle', tone: 'quiet' },
};

/** The verdicts, in the order of their severity. */
export const VERDICT_NAMES = /** @type {Verdict[]} */ (Object.keys(VERDICTS));

/** Verdicts of runs whose goal fell at some step. A goal that never rose has no such step. */
const FELL = ['collapsed', 'declining', 'recovered'];

/** @param {Verdict | null | undefined} verdict */
export const verdictTitle = (verdict) => (verdict ? VERDICTS[verdict].title.toLowerCase() : '');

/** Returns the name of a cause as text: `update_size` as "update size". @param {string} cause */
export const causeText = (cause) => cause.replaceAll('_', ' ');

/** @param {Api.Steps | null | undefined} steps */
export const stepsText = (steps) =>
  !steps
    ? 'step unknown'
    : steps.healthy === steps.sick
      ? `from step ${steps.sick}`
      : `between steps ${steps.healthy} and ${steps.sick}`;

/** Returns verdict, first cause and onset in one line. @param {Pick<Api.RunItem, 'verdict' | 'cause' | 'onset'>} run */
export function verdictText({ verdict, cause, onset }) {
  const details = [cause && causeText(cause), onset && stepsText(onset)].filter(Boolean).join(', ');
  return details ? `${verdictTitle(verdict)}: ${details}` : verdictTitle(verdict);
}

/**
 * Returns the title of the verdict, with the onset of a fall.
 * @param {Verdict} verdict @param {Api.Steps | null | undefined} onset
 */
export const badgeText = (verdict, onset) =>
  onset && FELL.includes(verdict) ? `${VERDICTS[verdict].title}, onset ${stepsText(onset)}` : VERDICTS[verdict].title;

/**
 * The steps at which the goal of a run began to fall, as a band of a chart.
 * @typedef {{run: string, from: number, to: number, text: string}} Onset
 * @param {Api.RunItem[]} runs @returns {Onset[]}
 */
export const listOnsets = (runs) =>
  runs.flatMap((run) =>
    run.onset && FELL.includes(run.verdict ?? '')
      ? [{ run: run.id, from: run.onset.healthy, to: run.onset.sick, text: `${run.name}, ${verdictText(run)}` }]
      : [],
  );
