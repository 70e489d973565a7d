/** Comparability of metrics between configs. The catalog lists the fields that decide a metric's scale. Pure. */
import { groupDifferences } from './config.js';

const NO_SCALE = /(^|\.)timeout_seconds$/;

/**
 * Returns whether a field decides a metric's scale. The order of the terms does not.
 * @param {{name: string, scale?: string[]}} metricInfo
 * @param {string} metric
 * @param {string} path
 */
function decides(metricInfo, metric, path) {
  if (
    NO_SCALE.test(path) ||
    path === 'rewards' ||
    !metricInfo.scale?.some((root) => path === root || path.startsWith(`${root}.`))
  )
    return false;
  if (!metricInfo.name.includes('<term>')) return true;
  const term = `rewards.${metric.split('/')[1]}.`;
  return path.startsWith(term) && path !== `${term}weight`;
}

/**
 * Returns one run of each config, because seeds do not change scales and every metric is checked.
 * @param {Api.RunItem[]} runs @returns {Api.RunItem[]}
 */
export const keepOnePerConfig = (runs) => [
  ...new Map(runs.map((run) => [`${run.origin} ${run.config_hash}`, run])).values(),
];

/**
 * Returns the same for whole runs. Runs of different origins have different scales, because those of other trainers are
 * unknown.
 * @param {string} metric
 * @param {{name: string, scale?: string[]} | undefined} metricInfo
 * @param {{origin?: string, config?: any}[]} runs
 * @returns {string[]}
 */
export function findScalesApart(metric, metricInfo, runs) {
  if (!metricInfo?.scale?.length) return [];
  if (new Set(runs.map(({ origin }) => origin ?? '')).size > 1) return ['origin'];
  return runs[0]?.origin
    ? []
    : scaleDifferences(
        metric,
        metricInfo,
        runs.map(({ config }) => config),
      );
}

/**
 * Returns the fields that give a metric several scales in these configs, or an empty list if it can be compared.
 * @param {string} metric
 * @param {{name: string, scale?: string[]} | undefined} metricInfo
 * @param {any[]} configs
 * @returns {string[]}
 */
export function scaleDifferences(metric, metricInfo, configs) {
  if (!metricInfo?.scale?.length) return [];
  const groups = configs.filter(Boolean).map((config, i) => ({ name: String(i), configs: [config] }));
  return groupDifferences(groups)
    .map(({ path }) => path)
    .filter((path) => decides(metricInfo, metric, path));
}

/** Returns the note next to numbers or curves of such a metric. @param {string[]} paths */
export function scaleWarning(paths) {
  if (!paths.length) return '';
  const moreText = paths.length > 3 ? `, +${paths.length - 3}` : '';
  return `not comparable: ${paths.slice(0, 3).join(', ')}${moreText} ${paths.length === 1 ? 'differs' : 'differ'}`;
}
