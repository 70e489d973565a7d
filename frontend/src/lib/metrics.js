/** Order and groups of metric names. The first segment of a name is its section. */

/** @param {string} metric */
export const findSection = (metric) => (metric.includes('/') ? metric.slice(0, metric.indexOf('/')) : 'other');

/** The sections in the order in which they explain whether a policy learns, and if not, why. */
export const SECTION_ORDER = [
  'eval',
  'reward',
  'policy',
  'length',
  'groups',
  'advantage',
  'clip',
  'ratio',
  'kl',
  'loss',
  'optim',
  'mismatch',
  'sampling',
  'tokens',
  'throughput',
  'time',
];

/** The default metrics. */
export const KEY_METRICS = [
  'reward/mean',
  'reward/accuracy',
  'eval/accuracy',
  'policy/entropy',
  'length/mean',
  'groups/zero_variance_frac',
  'clip/high_frac',
  'optim/grad_norm',
  'loss/total',
];

const rankSection = (/** @type {string} */ section) => {
  const index = SECTION_ORDER.indexOf(section);
  return index < 0 ? SECTION_ORDER.length : index;
};

/** @param {string[]} metrics @returns {{section: string, metrics: string[]}[]} */
export function groupBySection(metrics) {
  const sections = new Map();
  for (const metric of [...new Set(metrics)].sort()) {
    const section = findSection(metric);
    sections.set(section, [...(sections.get(section) ?? []), metric]);
  }
  return [...sections]
    .map(([section, inside]) => ({ section, metrics: inside }))
    .sort((a, b) => rankSection(a.section) - rankSection(b.section) || (a.section < b.section ? -1 : 1));
}

/** Returns whether a metric has values only at some steps, as evaluations do. @param {string} metric */
export const isSparse = (metric) => metric.startsWith('eval/');

/** Returns the kind of a metric's completions: `train`, `eval` or `eval/<suite>`. @param {string} metric */
export const findMetricKind = (metric) => (isSparse(metric) ? metric.split('/').slice(0, -1).join('/') : 'train');

/** Returns the metrics whose name contains all words of the search. @param {string[]} metrics @param {string} search */
export function filterMetrics(metrics, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return metrics.filter((metric) => words.every((word) => metric.toLowerCase().includes(word)));
}

/** Units of metrics that cannot be below 0. */
const COUNTED = new Set(
  (
    'answers batches bytes bytes/s calls completions FLOP/s lengths money prompts ratio requests scores seconds starts ' +
    'tokens tokens/s turns updates values versions watts'
  ).split(' '),
);
/** Metrics with other units that cannot be below 0 either. */
const NON_NEGATIVE = /\/(std|grad_norm|update_norm|lr|entropy|k2|k3)$/;
/** A fraction of a variance is below 0 if a prediction is worse than the mean. */
const SIGNED = new Set(['critic/explained_variance']);

/**
 * Returns the range of values that a metric of the catalog can have.
 * @param {{name: string, unit: string} | undefined} metricInfo its entry @returns {[number, number]}
 */
export function findPossibleRange(metricInfo) {
  if (!metricInfo || SIGNED.has(metricInfo.name)) return [-Infinity, Infinity];
  if (['fraction', 'probability'].includes(metricInfo.unit)) return [0, 1];
  return [COUNTED.has(metricInfo.unit) || NON_NEGATIVE.test(metricInfo.name) ? 0 : -Infinity, Infinity];
}
