/** The values of a run by key: fields of the list, summary metrics and config fields. Pure. */
import { flatten, formatField } from './config.js';
import { originTitle } from './origin.js';
import { causeText, verdictTitle } from './verdicts.js';
import { lookup } from '../lookup.js';
import { formatAgo, formatCount, formatDuration, formatValue } from '../text/format.js';

/** @typedef {Api.RunItem} Run */

/**
 * @type {Record<string, {title: string, read: (run: Run) => any, show?: (value: any) => string, sort?: string,
 *   number?: boolean}>}
 */
const PLAIN = {
  experiment: { title: 'experiment', read: (run) => run.experiment_name },
  changes: { title: 'settings changed', read: changesText },
  created: { title: 'created', read: (run) => run.created_at, show: formatAgo, sort: 'created_at' },
  duration: { title: 'duration', read: computeSeconds, show: formatDuration },
  step: { title: 'step', read: (run) => run.last_step, show: formatCount, sort: 'last_step', number: true },
  verdict: { title: 'verdict', read: (run) => verdictTitle(run.verdict), sort: 'verdict' },
  onset: { title: 'onset', read: (run) => run.onset?.sick, sort: 'onset', number: true },
  cause: { title: 'cause', read: (run) => causeText(run.cause) },
  tags: { title: 'tags', read: (run) => run.tags, show: (tags) => tags.join(' ') },
  reason: { title: 'reason', read: (run) => run.reason },
  origin: {
    title: 'other trainer',
    read: (run) => run.origin && [originTitle(run.origin), run.origin_file || run.writer].filter(Boolean).join(', '),
  },
  id: { title: 'id', read: (run) => run.id },
};

/**
 * Returns the settings that differ from the preset and the policy's profile: `lr 0.03, group_size 6`.
 * @param {Run} run
 */
function changesText({ changes }) {
  return Object.entries(changes ?? {})
    .sort(([, a], [, b]) => Number(Array.isArray(a)) - Number(Array.isArray(b)))
    .map(
      ([path, value]) =>
        `${path
          .replace(/\.type$/, '')
          .split('.')
          .at(-1)} ${formatField(value)}`,
    )
    .join(', ');
}

/** Returns the seconds from the first start to the end, or until now. @param {Run} run */
function computeSeconds({ started_at: from, finished_at: to, status }) {
  if (!from || (!to && status !== 'running')) return undefined;
  return ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000;
}

/**
 * Returns a field by key: a name in PLAIN, a metric (`reward/mean`: its last value), `best:<metric>` or
 * `config:<path>`.
 * @param {string} key
 * @typedef {{key: string, title: string, number: boolean, sort?: string, read: (run: Run) => any,
 *   text: (run: Run) => string, age?: (run: Run) => number | undefined}} RunField `age`: the step of a value that is
 *   older than the run's last step
 * @returns {RunField}
 */
export function makeRunField(key) {
  const plainField = lookup(PLAIN, key);
  if (plainField) {
    const { title, read, show = (/** @type {any} */ value) => value || '–', sort, number = false } = plainField;
    return { key, title, number, sort, read, text: (run) => show(read(run)) };
  }
  if (key.startsWith('config:')) return makeConfigField(key);
  return makeMetricField(key);
}

/** Paths by which the service can sort. Those of imported configs may contain any characters. */
const SORTABLE_PATH = /^[\w-]+(\.[\w-]+){0,9}$/;

/** @param {string} key @returns {RunField} */
function makeConfigField(key) {
  const path = key.slice('config:'.length);
  const readValue = (/** @type {Run} */ run) => (run.config ? lookup(flatten(run.config), path) : undefined);
  const sort = SORTABLE_PATH.test(path) ? `config.${path}` : undefined;
  return { key, title: path, number: false, sort, read: readValue, text: (run) => formatField(readValue(run)) };
}

/** @param {string} key @returns {RunField} */
function makeMetricField(key) {
  const isBest = key.startsWith('best:');
  const metric = isBest ? key.slice('best:'.length) : key;
  const readValue = (/** @type {Run} */ { summary }) =>
    isBest ? lookup(summary?.best, metric)?.value : lookup(summary?.last, metric);
  return {
    key,
    title: isBest ? `best ${shortenText(metric)}` : shortenText(metric),
    number: true,
    sort: isBest ? undefined : `summary.${metric}`,
    read: readValue,
    text: (run) => formatValue(readValue(run)),
    age: isBest ? undefined : ({ summary }) => lookup(summary?.older, metric),
  };
}

const SHORT = {
  'reward/mean': 'reward',
  'eval/accuracy': 'accuracy',
  'policy/entropy': 'entropy',
  'length/mean': 'length',
};
const shortenText = (/** @type {string} */ metric) => lookup(SHORT, metric) ?? metric;

/**
 * Returns the keys of possible columns for these runs.
 * @param {Run[]} runs
 * @returns {{plain: string[], last: string[], best: string[], config: string[]}}
 */
export function listPossibleFields(runs) {
  const union = (/** @type {(run: Run) => object | null | undefined} */ readObject) =>
    [...new Set(runs.flatMap((run) => Object.keys(readObject(run) ?? {})))].sort();
  return {
    plain: Object.keys(PLAIN).filter((key) => key !== 'experiment'),
    last: union((run) => run.summary?.last),
    best: union((run) => run.summary?.best).map((metric) => `best:${metric}`),
    config: union((run) => run.config && flatten(run.config)).map((path) => `config:${path}`),
  };
}

/** Returns the name of a run in charts. @param {Pick<Run, 'name' | 'variant' | 'seed'>} run */
export function runTitle({ name, variant, seed }) {
  const seedText = seed === null || seed === undefined ? '' : ` s${seed}`;
  return `${name}${variant ? ` · ${variant}` : ''}${seedText}`;
}

/** Returns whether a run only evaluates a policy without training. @param {{steps: number}} run */
export const isEvaluation = ({ steps }) => steps === 0;

/** Returns the metrics recorded by any of these runs. @param {Run[]} runs @returns {string[]} */
export const listMetrics = (runs) => [...new Set(runs.flatMap((run) => Object.keys(run.summary?.last ?? {})))].sort();

/**
 * Returns the distinct values of these runs, sorted.
 * @param {Run[]} runs @param {(run: Run) => string | string[]} readValue @returns {string[]}
 */
export const listDistinct = (runs, readValue) => [...new Set(runs.flatMap(readValue).filter(Boolean))].sort();
