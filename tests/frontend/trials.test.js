import { test } from 'node:test';
import assert from 'node:assert/strict';
import { describeChangedFields, placeErrors } from '../../frontend/src/lib/trials.js';

test('only changes that differ from the config are shown', () => {
  const correctness = { name: 'correctness', weight: 1 };
  const format = { name: 'think_format', only_when_correct: false };
  const config = {
    rewards: [correctness, format],
    length: { truncated: { type: 'keep' } },
    optimizer: { lr: 0.1 },
  };
  const changed = { ...format, only_when_correct: true };
  assert.deepEqual(describeChangedFields(config, { rewards: [correctness, changed] }), [
    'rewards: think_format.only_when_correct: false → true',
  ]);
  assert.deepEqual(describeChangedFields(config, { rewards: [format, { name: 'length', weight: 0.5 }] }), [
    'rewards: without correctness',
    'rewards: with length (weight 0.5)',
  ]);
  assert.deepEqual(
    describeChangedFields(config, { 'length.truncated': { type: 'mask' }, 'optimizer.lr': 0.01, 'new.field': 1 }),
    ['length.truncated: keep → mask', 'optimizer.lr: 0.1 → 0.01', 'new.field: 1'],
  );
});

test('errors stand at their arm', () => {
  const errors = [
    { path: 'arms.1.changes.optimizer.lr', message: 'is bad' },
    { path: 'arms.1.changes', message: 'changes nothing' },
    { path: 'arms', message: 'is empty' },
    { path: 'steps', message: 'is small' },
  ];
  assert.deepEqual(
    [...placeErrors(errors)],
    [
      ['1', 'optimizer.lr is bad; changes nothing'],
      ['arms', 'is empty'],
      ['steps', 'is small'],
    ],
  );
});
