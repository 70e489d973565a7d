import { test } from 'node:test';
import assert from 'node:assert/strict';
import { chooseGroups, groupFacts, isRight, findNearestStep } from '../../frontend/src/lib/rollouts.js';

const completion = (changes = {}) => ({
  id: 'c',
  text: 'x',
  reward: 1,
  rewards: { correctness: 1 },
  advantage: 0.5,
  tokens: 1,
  finish_reason: 'stop',
  correct: true,
  flags: [],
  ...changes,
});

test('a completion without a correctness score is neither right nor wrong', () => {
  for (const [correctness, right] of [
    [1, true],
    [0, false],
    [null, null],
    ['NaN', null],
  ])
    assert.equal(isRight({ correct: null, flags: [], rewards: { correctness } }), right, String(correctness));
});

test('a group is useful when its rewards differ', () => {
  const [right, wrong] = [completion(), completion({ reward: 0, correct: false })];
  const facts = [
    [right, wrong],
    [wrong, wrong],
  ].map((completions) => groupFacts({ completions, reward_mean: null, reward_std: null }));
  assert.deepEqual(
    facts.map(({ mean, rightCount: count, useful }) => [mean, count, useful]),
    [
      [0.5, 1, true],
      [0, 0, false],
    ],
  );
});

test('filters join and groups without a match drop out', () => {
  const cut = completion({ correct: false, finish_reason: 'length', reward: 0.2, flags: ['truncated', 'wrong'] });
  const groups = [
    { id: 'a', completions: [completion(), cut] },
    { id: 'b', completions: [completion({ correct: false, reward: 0 })] },
  ];
  for (const [filter, least, ids] of [
    [[], null, ['a', 'b']],
    [['wrong'], null, ['a', 'b']],
    [['wrong', 'truncated'], null, ['a']],
    [['wrong'], 0.1, ['a']],
  ]) {
    const chosen = chooseGroups(groups, { filter, least }, 'recorded').map(({ id }) => id);
    assert.deepEqual(chosen, ids, `${filter} ${least}`);
  }
});

test('a step without rollouts shows the one before', () => {
  const steps = [10, 20, 30];
  for (const [step, shown] of [
    [0, 10],
    [10, 10],
    [14, 10],
    [20, 20],
    [99, 30],
  ])
    assert.equal(steps[findNearestStep(steps, step)], shown, String(step));
});
