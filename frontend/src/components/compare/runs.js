/** The runs to compare: those of an experiment, named runs, or those that match a query. */
import { getAll } from '../../data/api.js';
import { loadNamedRuns } from '../../data/run_list.js';

/**
 * @typedef {{experiment: string, runs: string[] | null, query: string}} Choice the first one that is not empty is used
 */
/** @typedef {{runs: Api.RunItem[], missing: string[], isCut?: boolean}} Loaded `isCut`: more runs match */

/** Maximum number of compared runs of a query, because their configs are loaded too. */
export const MAX_MATCHING = 1_000;

/**
 * Returns the choice of runs as one text, the key of their request, or null if nothing was chosen.
 * @param {Choice} choice
 */
export const makeChoice = ({ runs, query, experiment }) =>
  experiment || (runs?.length ? runs.join() : query ? `query ${query}` : null);

/** Returns the reason why there are no runs to compare. @param {Choice} choice */
export function describeEmptyChoice({ experiment, runs }) {
  if (experiment) return 'This experiment has no runs';
  return runs?.length ? 'These runs do not exist' : 'No run matches this query now';
}

/**
 * Loads the chosen runs with their configs.
 * @param {Choice} choice @param {AbortSignal} signal @returns {Promise<Loaded>}
 */
export async function loadRuns({ experiment, runs, query }, signal) {
  if (!experiment && runs?.length) return loadNamedRuns([...new Set(runs)], { include: 'config' }, signal);
  const filter = experiment ? { experiment } : { query };
  const limit = experiment ? Infinity : MAX_MATCHING + 1;
  const loadedRuns = await getAll('/runs', { ...filter, include: 'config', limit: 200 }, { limit, signal });
  return !experiment && loadedRuns.length > MAX_MATCHING
    ? { runs: loadedRuns.slice(0, MAX_MATCHING), missing: [], isCut: true }
    : { runs: loadedRuns, missing: [] };
}
