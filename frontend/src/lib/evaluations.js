/** Results of evaluations as rows of steps with columns of suites. Pure. */

/** @typedef {Api.EvaluationItem} Item */

/** Returns the displayed name of a suite. @param {string} suite empty: the held-out set */
export const suiteTitle = (suite) => suite || 'held-out set';

/** Returns suites sorted by name, with the held-out set first. @param {Item[]} items */
export const listSuites = (items) => [...new Set(items.map(({ suite }) => suite))].sort();

/**
 * Returns the metrics of some results: accuracy first, then pass@k and maj@k by k, then the others.
 * @param {Item[]} items @returns {string[]}
 */
export function listSuiteMetrics(items) {
  const names = [...new Set(items.flatMap(({ values }) => Object.keys(values)))].filter(
    (name) => name !== 'prompts' && name !== 'n',
  );
  const prefixes = ['accuracy', 'pass_at_', 'maj_at_', 'length_mean', 'truncated_frac'];
  const findRank = (/** @type {string} */ name) => prefixes.findIndex((prefix) => name.startsWith(prefix));
  const readK = (/** @type {string} */ name) => Number(name.split('_at_')[1] ?? 0);
  return names.sort((a, b) => findRank(a) - findRank(b) || readK(a) - readK(b));
}

/** Returns the usual name of a suite's metric, such as pass@4. @param {string} name */
export const metricTitle = (name) =>
  name.replace('_at_', '@').replace('length_mean', 'mean length').replace('truncated_frac', 'truncated');

/**
 * Returns a row for each step of each run, newest first within a run, with the result of each suite.
 * @param {Item[]} items @param {string[]} runs in order
 * @returns {{run: string, step: number, hasCheckpoint: boolean, itemBySuite: Map<string, Item>}[]}
 */
export function makeEvaluationRows(items, runs) {
  /** @type {Map<string, {run: string, step: number, hasCheckpoint: boolean, itemBySuite: Map<string, Item>}>} */
  const rows = new Map();
  for (const item of items) {
    const key = `${item.run} ${item.step}`;
    const row = rows.get(key) ?? {
      run: item.run,
      step: item.step,
      hasCheckpoint: item.has_checkpoint,
      itemBySuite: new Map(),
    };
    row.itemBySuite.set(item.suite, item);
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => runs.indexOf(a.run) - runs.indexOf(b.run) || b.step - a.step);
}

/** @param {Item[]} items the results of one suite @returns {string} e.g. `500 prompts × 4` */
export function sizeText(items) {
  const sizes = new Set(
    items.flatMap(({ values: { prompts, n } }) =>
      prompts === undefined ? [] : [`${prompts} ${prompts === 1 ? 'prompt' : 'prompts'} × ${n}`],
    ),
  );
  return [...sizes].join(', ');
}
