/** Groups of completions: their useful properties, and the choice of shown groups. */
import { lookup } from './lookup.js';

/** @typedef {Api.CompletionItem} Completion */
/** @typedef {Api.GroupItem} Group */

/** @param {Pick<Completion, 'finish_reason' | 'flags'>} completion */
export const isTruncated = ({ finish_reason: reason, flags }) => reason === 'length' || flags.includes('truncated');

/**
 * Returns whether a completion is known to be wrong. If correctness was not recorded, the flag decides.
 * @param {Completion} completion
 */
export const isWrong = ({ correct, flags }) => (typeof correct === 'boolean' ? !correct : flags.includes('wrong'));

/**
 * Returns whether a completion is known to be right, or null if that was not recorded.
 * @param {Completion} completion
 * @returns {boolean | null}
 */
export function isRight(completion) {
  if (typeof completion.correct === 'boolean') return completion.correct;
  if (completion.flags.includes('wrong')) return false;
  const { correctness } = completion.rewards;
  return typeof correctness === 'number' ? correctness > 0 : null;
}

/** Returns the flags that no other mark shows. @param {Pick<Completion, 'flags'>} completion */
export const otherFlags = ({ flags }) => flags.filter((flag) => flag !== 'truncated' && flag !== 'wrong');

/**
 * @param {Group} group
 * @returns {{rewards: number[], mean: number | null, std: number | null, rightCount: number, size: number, useful:
 *   boolean}}
 */
export function groupFacts(group) {
  const rewards = group.completions.map(({ reward }) => reward).filter((reward) => typeof reward === 'number');
  const mean = rewards.length ? rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length : null;
  const spread =
    rewards.length > 1 && mean !== null
      ? Math.sqrt(rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / (rewards.length - 1))
      : null;
  return {
    rewards,
    mean: group.reward_mean ?? mean,
    std: group.reward_std ?? spread,
    size: group.completions.length,
    rightCount: group.completions.filter((completion) => isRight(completion)).length,
    useful: rewards.some((reward) => reward !== rewards[0]),
  };
}

const hasFlag =
  (/** @type {string} */ name) =>
  (/** @type {Completion} */ { flags }) =>
    flags.includes(name);

/**
 * @typedef {{filter: string[], least: number | null}} Filter `filter`: marks as counted by the service, all of which
 *   a completion or its group must have
 */
/** @type {Record<string, (completion: Completion) => boolean>} */
const TESTS = {
  wrong: isWrong,
  rewarded: ({ reward }) => typeof reward === 'number' && reward > 0,
  truncated: isTruncated,
  repetitive: hasFlag('repetitive'),
  unparsed: hasFlag('unparsed'),
  language: hasFlag('language'),
  flagged: (completion) => otherFlags(completion).length > 0,
};
export const FILTERS = Object.keys(TESTS);

/** Reasons why a group was not used for training. @type {Record<string, string>} */
export const REASONS = {
  equal: 'all rewards are equal (zero-variance filter)',
  accuracy: 'its accuracy is outside the range of the filter',
  surplus: 'the step already had enough groups',
  waiting: 'it waits for the next step',
};
/** Options of the filter by groups. @type {Record<string, string>} */
export const GROUP_FILTERS = {
  '': 'all groups',
  same_reward: 'without signal',
  left_out: 'left out',
  equal: 'left out: rewards equal',
  accuracy: 'left out: accuracy',
  surplus: 'left out: step full',
  waiting: 'left out: waiting',
};
/** @type {Record<string, (group: Group) => boolean>} */
const GROUP_TESTS = {
  same_reward: (group) => groupFacts(group).rewards.length > 0 && !groupFacts(group).useful,
  left_out: ({ left_out: reason }) => reason !== '',
  ...Object.fromEntries(
    Object.keys(REASONS).map((name) => [name, (/** @type {Group} */ { left_out: reason }) => reason === name]),
  ),
};

/** @param {Filter} filter @param {Group} group */
const groupPasses = ({ filter }, group) => filter.every((name) => lookup(GROUP_TESTS, name)?.(group) ?? true);

/** Returns the chosen option of `GROUP_FILTERS`. @param {string[]} filter */
export const groupFilter = (filter) => filter.find((name) => lookup(GROUP_TESTS, name)) ?? '';

/** @param {Filter} filter @param {Completion} completion */
export const passes = ({ filter, least }, completion) =>
  filter.every((name) => lookup(TESTS, name)?.(completion) ?? true) &&
  (least === null || (typeof completion.reward === 'number' && completion.reward >= least));

/**
 * Returns a completion to show for a step: the first with all marks, else the first group's completion nearest to its
 * mean.
 * @param {Group[]} groups @param {string[]} marks
 * @returns {{group: Group, completion: Completion} | undefined}
 */
export function findExample(groups, marks) {
  const pairs = groups.flatMap((group) => group.completions.map((completion) => ({ group, completion })));
  const markedPair = pairs.find(({ completion }) => passes({ filter: marks, least: null }, completion));
  if (marks.length && markedPair) return markedPair;
  const mean = pairs.length ? (groupFacts(pairs[0].group).mean ?? 0) : 0;
  const distance = (/** @type {typeof pairs[0]} */ { completion: { reward } }) =>
    typeof reward === 'number' ? Math.abs(reward - mean) : Infinity;
  return pairs
    .filter(({ group }) => group === pairs[0].group)
    .reduce((nearest, pair) => (distance(pair) < distance(nearest) ? pair : nearest), pairs[0]);
}

/** @param {Filter} filter */
export const isFiltering = ({ filter, least }) => filter.length > 0 || least !== null;

/**
 * Orders of groups within a step.
 * @type {Record<string, {label: string, rank: ((facts: ReturnType<typeof groupFacts>) => number) | null}>}
 */
export const GROUP_ORDERS = {
  recorded: { label: 'sampling order', rank: null },
  low: { label: 'lowest reward', rank: ({ mean }) => mean ?? Infinity },
  high: { label: 'highest reward', rank: ({ mean }) => -(mean ?? -Infinity) },
  spread: { label: 'largest spread', rank: ({ std }) => -(std ?? -Infinity) },
};

/**
 * Returns the groups with a completion that passes, in the chosen order.
 * @param {Group[]} groups
 * @param {Filter} filter
 * @param {string} order
 */
export function chooseGroups(groups, filter, order) {
  const matchingGroups = groups.filter(
    (group) => groupPasses(filter, group) && group.completions.some((completion) => passes(filter, completion)),
  );
  const { rank } = lookup(GROUP_ORDERS, order);
  return rank ? [...matchingGroups].sort((a, b) => rank(groupFacts(a)) - rank(groupFacts(b))) : matchingGroups;
}

/** Orders of completions within a group, by index. @type {Record<string, string>} */
export const CARD_ORDERS = { index: 'index', reward: 'reward', advantage: 'advantage', length: 'length' };

/** @param {{completion: Completion, index: number}[]} cards @param {string} order */
export function sortCards(cards, order) {
  /** @type {Record<string, (completion: Completion) => number>} */
  const keys = {
    reward: ({ reward }) => -toNumber(reward),
    advantage: ({ advantage }) => -toNumber(advantage),
    length: ({ tokens }) => -tokens,
  };
  const key = lookup(keys, order);
  return key ? [...cards].sort((a, b) => key(a.completion) - key(b.completion)) : cards;
}

const toNumber = (/** @type {number | string | null} */ value) => (typeof value === 'number' ? value : -Infinity);

/**
 * Returns the index in `steps` of the nearest step that is not after the requested one, or 0 if all are after it.
 * @param {number[]} steps ascending
 * @param {number} step
 */
export function findNearestStep(steps, step) {
  const nextIndex = steps.findIndex((storedStep) => storedStep > step);
  if (nextIndex < 0) return steps.length - 1;
  return Math.max(0, nextIndex - 1);
}
