/** The runs of an experiment, for links to the same page of another run. */
import { useGet } from '../../data/resource.js';

const MAX_SIBLINGS = 200;

/**
 * Loads the runs of the run's experiment, including the run itself.
 * @param {Api.RunItem} run @returns {Api.RunItem[]}
 */
export function useSiblings(run) {
  const parameters = { experiment: run.experiment ?? undefined, limit: MAX_SIBLINGS, sort: 'name' };
  const runs = useGet(run.experiment ? '/runs' : null, parameters).data?.items ?? [];
  return runs.some(({ id }) => id === run.id) ? runs : [run, ...runs];
}

/** @param {Api.RunItem} run */
export const formatSibling = ({ name, variant, seed }) => `${name} · ${variant} s${seed}`;
