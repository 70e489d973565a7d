import { test } from 'node:test';
import assert from 'node:assert/strict';
import { bandOf, fairShare, groupsOf } from '../../frontend/src/lib/runs/groups.js';
import { marksOf } from '../../frontend/src/lib/runs/marks.js';

const run = (id, experiment, { lr = 0.1, seed = 0, step = null } = {}) => ({
  id,
  variant: 'grpo',
  experiment_name: experiment,
  config_hash: String(lr).padEnd(64, '0'),
  config: { lr, seed },
  fork_step: step,
});
const withoutConfigs = (runs) => runs.map((plain) => ({ ...plain, config: null }));
const named = (...runs) => groupsOf(runs).map(({ name, runs: members }) => [name, members.map(({ id }) => id)]);
const names = (runs) => groupsOf(runs).map(({ name }) => name);

test('seeds of one config share a mean', () => {
  assert.deepEqual(named(run('b', 'one', { seed: 1 }), run('a', 'one')), [['grpo', ['a', 'b']]]);
});

test('runs of one variant with other configs stand apart', () => {
  assert.deepEqual(named(run('a', 'one'), run('b', 'one', { lr: 0.2 }), run('c', 'one', { seed: 1 })), [
    ['grpo · lr 0.1', ['a', 'c']],
    ['grpo · lr 0.2', ['b']],
  ]);
});

test('the experiments tell groups of one variant apart', () => {
  assert.deepEqual(named(run('a', 'one'), run('b', 'two', { lr: 0.2 })), [
    ['grpo · one', ['a']],
    ['grpo · two', ['b']],
  ]);
});

test('without configs their hashes tell groups apart', () => {
  assert.deepEqual(named(...withoutConfigs([run('a', 'one'), run('b', 'one', { lr: 0.25 })])), [
    ['grpo · 0.1000', ['a']],
    ['grpo · 0.2500', ['b']],
  ]);
});

test('a fork stands apart from the run that it left', () => {
  assert.deepEqual(named(run('a', 'one'), run('b', 'one', { step: 5 }), run('c', 'one', { step: 5 })), [
    ['grpo · from the start', ['a']],
    ['grpo · fork at 5', ['b', 'c']],
  ]);
});

test('forks and configs tell groups apart together', () => {
  const runs = [run('a', 'one'), run('b', 'one', { step: 5 }), run('c', 'one', { lr: 0.2 })];
  assert.deepEqual(names(runs), [
    'grpo · lr 0.1 · from the start',
    'grpo · lr 0.1 · fork at 5',
    'grpo · lr 0.2 · from the start',
  ]);
  assert.deepEqual(names(withoutConfigs(runs)), [
    'grpo · 0.1000 · from the start',
    'grpo · 0.1000 · fork at 5',
    'grpo · 0.2000 · from the start',
  ]);
});

test('what can be drawn is shared fairly among groups', () => {
  const groups = [{ runs: [{ id: 'a' }, { id: 'b' }, { id: 'c' }] }, { runs: [{ id: 'x' }] }];
  assert.deepEqual(fairShare(groups, 3), ['a', 'x', 'b']);
});

test('an interval is drawn by itself only where there are three seeds', () => {
  for (const [seeds, band] of [
    [[3, 3], 'ci95'],
    [[3, 2], 'minmax'],
    [[1], 'minmax'],
  ]) {
    const groups = seeds.map((count) => ({ runs: Array(count).fill({}) }));
    assert.equal(bandOf('auto', groups), band, String(seeds));
    assert.equal(bandOf('std', groups), 'std', String(seeds));
  }
});

test('turns and errors of a run are marked once a step', () => {
  const event = (step, kind, level, message) => ({ step, kind, level, message });
  const events = [
    event(9, 'alert', 'error', 'skipped'),
    event(4, 'reference', 'info', 'replaced'),
    event(4, 'checkpoint', 'info', 'continued'),
    event(4, 'checkpoint', 'info', 'continued'),
    event(5, 'data', 'warning', 'm'),
    event(null, 'reference', 'info', 'm'),
  ];
  assert.deepEqual(marksOf(events), [
    { step: 4, text: 'replaced; continued' },
    { step: 9, text: 'skipped' },
  ]);
});
