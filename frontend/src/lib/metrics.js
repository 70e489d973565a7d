/** Order and grouping of metric names. The first segment of a name is its section. */

/** @param {string} metric */
export const sectionOf = (metric) => (metric.includes('/') ? metric.slice(0, metric.indexOf('/')) : 'other');

/** Sections in the order in which they answer "does it learn, and if not, why". */
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

/** What is drawn first when nobody has chosen. */
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

const rank = (/** @type {string} */ section) => {
  const at = SECTION_ORDER.indexOf(section);
  return at < 0 ? SECTION_ORDER.length : at;
};

/** @param {string[]} metrics @returns {{section: string, metrics: string[]}[]} */
export function bySection(metrics) {
  const sections = new Map();
  for (const metric of [...new Set(metrics)].sort()) {
    const section = sectionOf(metric);
    sections.set(section, [...(sections.get(section) ?? []), metric]);
  }
  return [...sections]
    .map(([section, inside]) => ({ section, metrics: inside }))
    .sort((a, b) => rank(a.section) - rank(b.section) || (a.section < b.section ? -1 : 1));
}

/** Evaluations are rare points, not a curve through every step. @param {string} metric */
export const isSparse = (metric) => metric.startsWith('eval/');

/** The kind of the completions behind a metric: `train`, `eval`, `eval/<suite>`. @param {string} metric */
export const kindOf = (metric) => (isSparse(metric) ? metric.split('/').slice(0, -1).join('/') : 'train');

/** Metrics whose name contains all words of the search. @param {string[]} metrics @param {string} search */
export function matching(metrics, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return metrics.filter((metric) => words.every((word) => metric.toLowerCase().includes(word)));
}
