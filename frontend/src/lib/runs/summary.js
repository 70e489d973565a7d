/** The summary of the runs on the Compare page. Pure. */
import { VERDICT_NAMES } from './verdicts.js';

/**
 * Returns the runs by verdict, with the most severe verdict first.
 * @param {Api.RunItem[]} runs @returns {{verdict: import('./verdicts.js').Verdict, runs: Api.RunItem[]}[]}
 */
export const countVerdicts = (runs) =>
  VERDICT_NAMES.map((verdict) => ({ verdict, runs: runs.filter((run) => run.verdict === verdict) })).filter(
    ({ runs }) => runs.length > 0,
  );
