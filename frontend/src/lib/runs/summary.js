/** What Compare says of its runs. Pure. */
import { VERDICT_NAMES } from './verdicts.js';

/**
 * The runs that have each verdict, the gravest first.
 * @param {Api.RunItem[]} runs @returns {{verdict: import('./verdicts.js').Verdict, runs: Api.RunItem[]}[]}
 */
export const verdictCounts = (runs) =>
  VERDICT_NAMES.map((verdict) => ({ verdict, runs: runs.filter((run) => run.verdict === verdict) })).filter(
    ({ runs }) => runs.length > 0,
  );
