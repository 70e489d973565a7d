/** Addresses of runs, rollouts, experiments and comparisons. */
import { address } from '../url.js';

/** @param {string} id @param {object} [parameters] */
export const runAddress = (id, parameters) => address(`/run/${encodeURIComponent(id)}`, parameters);

/**
 * Returns the address of a run's rollouts, which are the newest ones without a step.
 * @param {string} run @param {{kind?: string} & Record<string, unknown>} [parameters]
 */
export const rolloutsAddress = (run, { kind, ...parameters } = {}) =>
  runAddress(run, { tab: 'rollouts', ...parameters, kind: kind === 'train' ? undefined : kind });

/** @param {string} id @param {object} [parameters] */
export const experimentAddress = (id, parameters) => address(`/experiment/${encodeURIComponent(id)}`, parameters);

/** @param {string[]} runs */
export const comparisonAddress = (runs) => address('/compare', { runs });
