/** Breakdown: the metrics that can be decomposed into completions, and the two windows of steps to compare. */
import { rolloutsAddress } from './runs/addresses.js';

/** @typedef {{first: number, last: number}} Window */
/** @typedef {{healthy: number, sick: number}} Onset */

const MEANS = /^(reward\/([^/]+\/)?mean|reward\/accuracy|length\/(mean|truncated_frac)|text\/repetition)$/;
const OTHERS = ['groups/zero_variance_frac', 'policy/entropy', 'kl/k3', 'loss/total'];
const EVALUATED = /^eval\/([^/]+\/)?(accuracy|length_mean|truncated_frac)$/;
const NOT_A_TERM = ['reward/raw/mean'];

/**
 * Returns whether a metric is a sum over completions, as in backend/rollouts/breakdown/cells.py.
 * @param {string} metric
 */
export const isDecomposable = (metric) =>
  OTHERS.includes(metric) || ((MEANS.test(metric) || EVALUATED.test(metric)) && !NOT_A_TERM.includes(metric));

/** @type {{value: Api.BreakdownResponse['by'], label: string, title: string}[]} */
export const WAYS = [
  { value: 'prompt', label: 'Prompts', title: 'One row for each prompt' },
  { value: 'flag', label: 'Flags', title: 'Right, wrong, truncated, repetitive and so on' },
  { value: 'length', label: 'Lengths', title: 'Ranges of length' },
  { value: 'group', label: 'Groups', title: 'One row for each group of completions' },
  { value: 'term', label: 'Reward terms', title: 'Terms of the reward with their weights' },
];

/** Minimum share of a change that one prompt must explain. */
const MIN_EXPLAINED_SHARE = 0.25;

/**
 * Returns whether one prompt in both windows explains much of a change. If not, a split by flags is more useful.
 * @param {Pick<Api.BreakdownResponse, 'change'> & {rows: Pick<Api.BreakdownRow, 'kind' | 'total' | 'before' |
 *   'after'>[]}} answer of prompts
 */
export const isExplainedByPrompts = ({ change, rows }) =>
  rows.some(
    ({ kind, total, before, after }) =>
      kind === 'category' &&
      before.completions > 0 &&
      after.completions > 0 &&
      Math.abs(total) >= MIN_EXPLAINED_SHARE * Math.abs(change),
  );

/** Number of steps in a default window. */
const DEFAULT_STEPS = 10;

/**
 * Returns a window written as `10-20` or `10`, or null for other texts.
 * @param {string} text @returns {Window | null}
 */
export function readWindow(text) {
  const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(text.trim());
  if (!match) return null;
  const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
  return first <= last ? { first, last } : null;
}

/** @param {Window} window */
export const writeWindow = ({ first, last }) => (first === last ? String(first) : `${first}-${last}`);

/**
 * Returns the two neighbouring windows between which a metric changed most.
 * @param {number[]} steps ascending @param {number[]} values
 * @returns {{before: Window, after: Window} | null}
 */
export function chooseUsualWindows(steps, values) {
  if (steps.length < 2) return null;
  const size = Math.max(1, Math.min(DEFAULT_STEPS, Math.floor(steps.length / 4)));
  const sums = [0];
  for (const value of values) sums.push(sums[sums.length - 1] + (Number.isFinite(value) ? value : 0));
  const shift = (/** @type {number} */ index) => Math.abs(sums[index + size] - 2 * sums[index] + sums[index - size]);
  let bestIndex = size;
  for (let index = size; index + size <= steps.length; index += 1)
    if (shift(index) > shift(bestIndex) + 1e-12) bestIndex = index;
  return {
    before: { first: steps[bestIndex - size], last: steps[bestIndex - 1] },
    after: { first: steps[bestIndex], last: steps[bestIndex + size - 1] },
  };
}

/** @param {Onset} onset */
export const chooseOnsetWindows = ({ healthy, sick }) => ({
  before: { first: Math.max(0, healthy - DEFAULT_STEPS + 1), last: healthy },
  after: { first: sick, last: sick + DEFAULT_STEPS - 1 },
});

/**
 * Returns the address of the breakdown of a metric's change. `zoom`: the visible steps of a panel, which are compared
 * with as many steps before them.
 * @param {string} run @param {string} metric
 * @param {{zoom?: [number, number] | null, onset?: Onset | null, split?: Api.BreakdownResponse['by']}} [about]
 */
export function breakdownAddress(run, metric, { zoom, onset, split } = {}) {
  const windows = zoom ? readZoom(zoom) : onset ? chooseOnsetWindows(onset) : null;
  return rolloutsAddress(run, {
    view: 'breakdown',
    split,
    metric: isDecomposable(metric) ? metric : undefined,
    before: windows ? writeWindow(windows.before) : undefined,
    after: windows ? writeWindow(windows.after) : undefined,
  });
}

/** @param {[number, number]} zoom */
function readZoom([low, high]) {
  const [first, last] = [Math.max(0, Math.ceil(low)), Math.floor(high)];
  if (last < first || first === 0) return null;
  return { before: { first: Math.max(0, 2 * first - last - 1), last: first - 1 }, after: { first, last } };
}

/**
 * Returns the windows after dragging, which replaces the window whose middle is nearer to the start of the drag.
 * @param {{before: Window, after: Window}} windows @param {number} from @param {number} to steps
 */
export function redrawWindow({ before, after }, from, to) {
  const drawnWindow = { first: Math.round(Math.min(from, to)), last: Math.round(Math.max(from, to)) };
  const distance = (/** @type {Window} */ { first, last }) => Math.abs((first + last) / 2 - from);
  return distance(before) <= distance(after) ? { before: drawnWindow, after } : { before, after: drawnWindow };
}
