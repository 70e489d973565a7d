/** The ablation matrix in words and as a table for the clipboard. Pure. */
import { writeCsv } from '../text/csv.js';
import { formatShort, formatValue, plural } from '../text/format.js';
import { lookup } from '../lookup.js';

/** @typedef {import('./groups.js').Group} Group */
/** @typedef {{name: string, row: Api.MatrixRow}} NamedRow a row with the page's name of its group */

/**
 * Readings by their name in the address.
 * @type {Record<Api.MatrixColumn['reading'], {label: string, title: string}>}
 */
export const READINGS = {
  final: { label: 'at the end', title: 'Mean of the last 10 steps; of eval/ metrics the last evaluation' },
  best: { label: 'best', title: 'Largest or smallest value, by the direction of the metric' },
  equal_tokens: { label: 'at equal tokens', title: 'At the largest number of tokens that every run has reached' },
  auc: { label: 'mean height', title: 'Area under the curve over its width, up to the last step of every run' },
  steps_to: { label: 'steps to', title: 'First step that reaches the threshold' },
  tokens_to: { label: 'tokens to', title: 'Tokens generated until the threshold is reached' },
  seconds_to: { label: 'seconds to', title: 'Seconds trained until the threshold is reached' },
};

export const needsThreshold = (/** @type {string} */ reading) => reading.endsWith('_to');

/** Returns the title of a column, such as `eval/accuracy at the end`. @param {Api.MatrixColumn} column */
export const columnTitle = ({ metric, reading, threshold }) =>
  needsThreshold(reading)
    ? `${READINGS[reading].label} ${metric} ${threshold}`
    : `${metric} ${READINGS[reading].label}`;

/** Returns the title of a column from its key. @param {string} key */
export function keyTitle(key) {
  const [metric, reading = 'final', threshold] = key.split(':');
  return Object.hasOwn(READINGS, reading)
    ? columnTitle(/** @type {any} */ ({ metric, reading, threshold: threshold && Number(threshold) }))
    : key;
}

/**
 * Returns the request to the service, with every group as a row.
 * @param {Group[]} groups @param {{columns: string[] | null, planned: number | null}} view @param {Group} baseline
 */
export const makeMatrixParams = (groups, { columns, planned }, baseline) => ({
  runs: groups.map(({ runs }) => `${runs.map(({ id }) => id).join(',')};`).join(''),
  baseline: baseline.runs[0].id,
  metrics: columns?.length ? columns.join(',') : undefined,
  planned: planned ?? undefined,
});

/**
 * Returns the page's groups with their rows, without groups that the service does not know.
 * @param {Group[]} groups
 * @param {Api.Matrix} matrix @returns {NamedRow[]}
 */
export const nameRows = (groups, { rows }) =>
  groups.flatMap(({ name, runs }) => {
    const row = rows.find((matrixRow) => matrixRow.runs.some(({ id }) => id === runs[0].id));
    return row ? [{ name, row }] : [];
  });

/** @param {number | null | undefined} value */
const formatSigned = (value) =>
  value === null || value === undefined ? '–' : `${value > 0 ? '+' : ''}${formatValue(value)}`;

const computeHalf = (/** @type {{low: number | null, high: number | null}} */ { low, high }) =>
  low === null || high === null ? null : (high - low) / 2;

/** Returns the mean and the half width of its interval, such as `0.61 ± 0.03`. @param {Api.MatrixCell} cell */
export function estimateText(cell) {
  if (cell.mean === null) return cell.reached === 0 ? 'not reached' : '–';
  const halfWidth = computeHalf(cell);
  return halfWidth === null ? formatValue(cell.mean) : `${formatValue(cell.mean)} ± ${formatValue(halfWidth)}`;
}

/**
 * Returns the number of a row's runs that reached a threshold, and the number of counted runs.
 * @param {Api.MatrixCell} cell
 * @param {Api.MatrixRow} row
 */
export const reachedText = ({ reached }, { runs }) =>
  reached === null ? '' : `${reached} of ${runs.filter(({ counts }) => counts).length} reached`;

const SIDES = ['better', 'worse', 'higher', 'lower'];

/** Words for an undecided cell. @type {Partial<Record<Api.MatrixCell['verdict'], string>>} */
const UNDECIDED = { 'no claim': 'not tested', 'more seeds': 'undecided, needs more seeds' };

/**
 * Returns the difference from the baseline, such as `+0.1 better` or `+0.1, not tested`.
 * @param {Api.MatrixCell} cell
 */
export function verdictText({ verdict, versus }) {
  if (verdict === 'baseline') return '';
  const words = UNDECIDED[verdict] ?? verdict;
  if (!versus) return words;
  return `${formatSigned(versus.mean)}${SIDES.includes(verdict) ? ' ' : ', '}${words}`;
}

/**
 * Returns the effect of pairing by seed on the noise of the difference.
 * @param {number} ratio variance of the paired differences over that of independent seeds
 */
function pairingText(ratio) {
  const percent = `${Math.round(Math.abs(ratio - 1) * 100)} %`;
  if (Math.abs(ratio - 1) < NO_EFFECT) return 'Pairing by seed made no difference to the noise.';
  return ratio < 1
    ? `Pairing by seed removed ${percent} of the variance: equal seeds move together.`
    : `Pairing by seed added ${percent} of variance: equal seeds do not move together here.`;
}

/** Changes of the variance by pairing below this are not quantified. */
const NO_EFFECT = 0.05;

/** Returns a p-value with two digits. @param {number | null} p */
const pText = (p) => (p === null ? '' : p < 0.001 ? '< 0.001' : `= ${Number(p.toPrecision(2))}`);

/**
 * Returns all numbers of a cell in sentences.
 * @param {Api.MatrixCell} cell @param {{looks: string, tests: number}} matrix @param {string} baseline its name
 * @param {Api.MatrixRow} row @returns {string[]}
 */
export function makeSentences(cell, { looks, tests }, baseline, row) {
  const { n, low, high, versus, reason, more_seeds: moreSeeds, verdict } = cell;
  const interval = low === null ? '' : `, 95 % interval of the mean ${formatValue(low)} to ${formatValue(high)}`;
  const sentences = [`${estimateText(cell)} over ${plural(n, 'seed')}${interval}.`];
  const reachedSentence = reachedText(cell, row);
  if (reachedSentence) sentences.push(`${reachedSentence} the threshold.`);
  if (versus) {
    const kind = looks === 'planned' ? '95 % interval' : 'always-valid 95 % interval';
    const ends = versus.low === null ? '' : `, ${kind} ${formatSigned(versus.low)} to ${formatSigned(versus.high)}`;
    const pairs = versus.paired ? `over ${plural(versus.n, 'pair')} of seeds` : `over ${versus.n} seeds each, unpaired`;
    sentences.push(`${formatSigned(versus.mean)} to ${baseline} ${pairs}${ends}.`);
    if (versus.variance_ratio !== null) sentences.push(pairingText(versus.variance_ratio));
    if (versus.p_corrected !== null)
      sentences.push(
        `p ${pText(versus.p)}, corrected over ${plural(tests, 'difference')} p ${pText(versus.p_corrected)}.`,
      );
    if (versus.effect !== null) sentences.push(`Hedges' g = ${formatSigned(versus.effect)}.`);
  }
  if (reason) sentences.push(reason);
  if (moreSeeds && verdict === 'no claim') sentences.push(`An interval needs ${plural(moreSeeds, 'more seed')}.`);
  else if (moreSeeds)
    sentences.push(
      `${plural(moreSeeds, 'more seed')} would decide this at 80 %, if the difference is as large as it looks.`,
    );
  return sentences;
}

/**
 * Returns clones that give a row and the baseline `count` more common seeds: first seeds of only one of them, then new
 * ones.
 * @param {{id: string, seed: number}[]} rowRuns @param {{id: string, seed: number}[]} baselineRuns
 * @param {number} count
 * @returns {{run: string, seed: number}[]} the runs to clone, and the clones' seeds
 */
export function chooseSeeds(rowRuns, baselineRuns, count) {
  const [rowSeeds, baselineSeeds] = [rowRuns, baselineRuns].map((runs) => new Set(runs.map(({ seed }) => seed)));
  const unpairedSeeds = [...rowSeeds, ...baselineSeeds]
    .filter((seed) => rowSeeds.has(seed) !== baselineSeeds.has(seed))
    .sort((a, b) => a - b);
  const next = Math.max(-1, ...rowSeeds, ...baselineSeeds) + 1;
  const newSeeds = Array.from({ length: Math.max(0, count - unpairedSeeds.length) }, (_, i) => next + i);
  return [...unpairedSeeds.slice(0, count), ...newSeeds].flatMap((seed) => [
    ...(rowSeeds.has(seed) ? [] : [{ run: rowRuns[0].id, seed }]),
    ...(baselineSeeds.has(seed) ? [] : [{ run: baselineRuns[0].id, seed }]),
  ]);
}

/** @param {NamedRow[]} rows @param {Api.Matrix} matrix */
const makeTextRows = (rows, { columns }) =>
  rows.map(({ name, row }) => [
    name,
    ...columns.map(({ key }) => {
      const cell = lookup(row.cells, key);
      const verdict = verdictText(cell);
      return `${estimateText(cell)} (n ${cell.n})${verdict && `; ${verdict}`}`;
    }),
  ]);

/** @param {NamedRow[]} rows @param {Api.Matrix} matrix @returns {{head: string[], rows: string[][]}} */
export const toPlainTable = (rows, matrix) => ({
  head: ['variant', ...matrix.columns.map(columnTitle)],
  rows: makeTextRows(rows, matrix),
});

/** Returns text escaped for a cell of a Markdown table. @param {string} text */
const escapeMarkdown = (text) => text.replace(/[\r\n]+/g, ' ').replace(/[\\`*_{}[\]<>#!|~&$]/g, (mark) => `\\${mark}`);

/** @param {NamedRow[]} rows @param {Api.Matrix} matrix */
export function toMarkdown(rows, matrix) {
  const table = toPlainTable(rows, matrix);
  const line = (/** @type {string[]} */ cells) => `| ${cells.map(escapeMarkdown).join(' | ')} |`;
  return [line(table.head), `|${' --- |'.repeat(table.head.length)}`, ...table.rows.map(line), ''].join('\n');
}

/**
 * Returns a row for each variant and column, with all numbers in full precision.
 * @param {NamedRow[]} rows @param {Api.Matrix} matrix
 */
export function toCsv(rows, { columns }) {
  const head =
    'variant,metric,reading,threshold,n,mean,std,low,high,' +
    'delta,delta_low,delta_high,pairs,paired,p,p_holm,hedges_g,verdict,more_seeds';
  const body = rows.flatMap(({ name, row }) =>
    columns.map(({ key, metric, reading, threshold }) => {
      const { n, mean, std, low, high, versus: comparison, verdict, more_seeds: moreSeeds } = lookup(row.cells, key);
      const difference = [
        comparison?.mean,
        comparison?.low,
        comparison?.high,
        comparison?.n,
        comparison?.paired,
        comparison?.p,
        comparison?.p_corrected,
        comparison?.effect,
      ];
      return [name, metric, reading, threshold, n, mean, std, low, high, ...difference, verdict, moreSeeds];
    }),
  );
  return writeCsv(head.split(','), body);
}

/** @type {Record<string, string>} */
const LATEX = {
  '\\': '\\textbackslash{}',
  '~': '\\textasciitilde{}',
  '^': '\\textasciicircum{}',
  '±': '$\\pm$',
  '–': '--',
};

/** Returns text escaped for LaTeX. @param {string} text */
const escapeLatex = (text) =>
  text.replace(/[\r\n]+/g, ' ').replace(/[\\~^±–#$%&_{}]/g, (mark) => lookup(LATEX, mark) ?? `\\${mark}`);

/**
 * Returns a booktabs table with significant differences in bold.
 * @param {NamedRow[]} rows @param {Api.Matrix} matrix
 */
export function toLatex(rows, { columns }) {
  const line = (/** @type {string[]} */ cells) => `${cells.join(' & ')} \\\\`;
  const body = rows.map(({ name, row }) =>
    line([
      escapeLatex(name),
      ...columns.map(({ key }) => {
        const text = escapeLatex(estimateText(lookup(row.cells, key)));
        return lookup(row.cells, key).verdict === 'better' ? `\\textbf{${text}}` : text;
      }),
    ]),
  );
  return [
    `\\begin{tabular}{l${'r'.repeat(columns.length)}}`,
    '\\toprule',
    line(['variant', ...columns.map((column) => escapeLatex(columnTitle(column)))]),
    '\\midrule',
    ...body,
    '\\bottomrule',
    '\\end{tabular}',
    '',
  ].join('\n');
}

/** Returns the meaning of the numbers and the plan of looks at the data. @param {Api.Matrix} matrix */
export const planText = ({ looks, planned, tests }) => {
  const correctionText = tests ? ` Differences are corrected over ${plural(tests, 'test')} (Holm).` : '';
  const plan =
    looks === 'planned'
      ? `Plan: ${plural(planned ?? 0, 'seed')} per variant, one look at the end (Student's t).`
      : `No plan: intervals of differences are always-valid, look as often as you like. They assume that differences ` +
        `are not skewed to one side; those of lengths and times may be.`;
  return `Mean over seeds ± half of its 95 % interval (CI). ${plan}${correctionText}`;
};

/**
 * Returns the number of tokens of a column at equal tokens, for its title.
 * @param {Api.MatrixColumn} column @param {Api.Matrix} matrix
 */
export const describeColumn = ({ reading, unit }, { tokens }) =>
  reading === 'equal_tokens' && tokens ? `${formatShort(tokens)} tokens` : unit;
