/**
 * The values by which runs are grouped, as in the service (backend/metrics/grouping.py): variant, experiment, tag,
 * verdict, the whole config except the seed, or fields of configs. Pure.
 */
import { lookup } from '../lookup.js';
import { findDifferences, flatten } from './config.js';
import { verdictTitle } from './verdicts.js';

const CONFIG = 'config.';
/** @type {Record<string, (run: Api.RunItem) => unknown>} */
const ABOUT_RUN = {
  variant: (run) => run.variant,
  experiment: (run) => run.experiment_name,
  tag: (run) => (run.tags?.length ? [...new Set(run.tags)].sort() : undefined),
  verdict: (run) => run.verdict,
  config: (run) => run.config_hash,
};
const MAX_KEYS = 8;

/** Returns the keys of a view parameter, or `variant` if it has none. @param {string} grouping @returns {string[]} */
export function parseGrouping(grouping) {
  const keys = grouping.split(',').filter((key) => Object.hasOwn(ABOUT_RUN, key) || /^config\../.test(key));
  return keys.length ? [...new Set(keys)].slice(0, MAX_KEYS) : ['variant'];
}

/**
 * Returns the fields that distinguish these runs, except the seed. A name with a comma cannot be written in a list.
 * @param {Api.RunItem[]} runs
 */
export const findDifferingFields = (runs) =>
  findDifferences(runs.map(({ config }) => config ?? {}))
    .map(({ path }) => path)
    .filter((path) => path !== 'seed' && !path.includes(','));

/** @param {Api.RunItem} run @param {string} key @returns {unknown} `undefined` if the run has none */
function readValue(run, key) {
  if (!key.startsWith(CONFIG)) return lookup(ABOUT_RUN, key)(run) ?? undefined;
  const path = key.slice(CONFIG.length);
  const flat = flatten(run.config ?? {});
  const value = lookup(flat, path);
  return value === undefined ? lookup(flat, `${path}.type`) : value;
}

/** Returns the identity of a run's group. @param {Api.RunItem} run @param {string[]} keys */
export const makeIdentity = (run, keys) =>
  JSON.stringify(keys.map((key) => [readValue(run, key)].filter((value) => value !== undefined)));

/**
 * Returns the name of a group from one of its runs: `variant`, `sampling.group_size 8`, `no verdict`.
 * @param {Api.RunItem} run @param {string[]} keys
 */
export const makeLabel = (run, keys) => keys.map((key) => makeLabelPart(run, key)).join(', ');

/** @param {Api.RunItem} run @param {string} key */
function makeLabelPart(run, key) {
  const value = readValue(run, key);
  const field = key.startsWith(CONFIG) ? key.slice(CONFIG.length) : key;
  if (value === undefined) return `no ${field}`;
  if (key === 'config') return `${run.variant} · ${String(value).slice(0, 6)}`;
  if (key === 'verdict') return verdictTitle(run.verdict);
  const text = Array.isArray(value) ? value.map(formatPlain).join(' + ') : formatPlain(value);
  return key.startsWith(CONFIG) ? `${field} ${text}` : text;
}

const formatPlain = (/** @type {unknown} */ value) =>
  value !== null && typeof value === 'object' ? JSON.stringify(value) : String(value);
