import { test } from 'node:test';
import assert from 'node:assert/strict';
import { chooseBand, takeFairShare, makeGroups, makeRunTitles } from '../../frontend/src/lib/runs/groups.js';
import { makeMarks } from '../../frontend/src/lib/runs/marks.js';

const run = (id, experiment, { lr = 0.1, seed = 0, step = null } = {}) => ({
  id,
  variant: 'grpo',
  experiment_name: experiment,
  config_hash: String(lr).padEnd(64, '0'),
  config: { lr, seed },
  fork_step: step,
});
const withoutConfigs = (runs) => runs.map((plain) => ({ ...plain, config: null }));
const named = (...runs) => makeGroups(runs).map(({ name, runs: members }) => [name, members.map(({ id }) => id)]);
const names = (runs) => makeGroups(runs).map(({ name }) => name);

test('seeds of one config share a mean', () => {
  assert.deepEqual(named(run('b', 'one', { seed: 1 }), run('a', 'one')), [['grpo', ['a', 'b']]]);
});

test('runs of one variant with other configs stand apart', () => {
  assert.deepEqual(named(run('a', 'one'), run('b', 'one', { lr: 0.2 }), run('c', 'one', { seed: 1 })), [
    ['grpo · lr 0.1', ['a', 'c']],
    ['grpo · lr 0.2', ['b']],
  ]);
});

test('the field that decides names groups of other experiments, too', () => {
  assert.deepEqual(names([run('a', 'one'), run('b', 'two', { lr: 0.2 })]), ['grpo · lr 0.1', 'grpo · lr 0.2']);
  assert.deepEqual(names(withoutConfigs([run('a', 'one'), run('b', 'two', { lr: 0.2 })])), [
    'grpo · one',
    'grpo · two',
  ]);
});

test('two forks that differ tenfold in one field are named by it, whatever else differs before', () => {
  const fork = (id, lr, [low, high, steps]) => ({
    ...run(id, 'one', { lr, step: 10 }),
    config_hash: id.repeat(64),
    config: { steps, clip: { low, high }, optimizer: { lr }, seed: 0 },
  });
  const runs = [fork('a', 3e-3, [0.2, 0.2, 40]), fork('b', 3e-4, [0.2, 0.2, 40]), fork('c', 3e-4, [0.1, 0.3, 20])];
  assert.deepEqual(names(runs), ['grpo · low 0.2, lr 0.003', 'grpo · low 0.2, lr 0.0003', 'grpo · low 0.1, lr 0.0003']);
});

test('a single run is called by what tells its group apart', () => {
  const groups = makeGroups([
    { ...run('a', 'one'), name: 'puma' },
    { ...run('b', 'one', { lr: 0.2 }), name: 'kagu' },
  ]);
  assert.deepEqual([...makeRunTitles(groups).values()], ['puma · grpo · lr 0.1', 'kagu · grpo · lr 0.2']);
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
  assert.deepEqual(takeFairShare(groups, 3), ['a', 'x', 'b']);
});

test('an interval is drawn by itself only where there are ten seeds', () => {
  for (const [seeds, band] of [
    [[10, 12], 'ci95'],
    [[10, 9], 'minmax'],
    [[1], 'minmax'],
  ]) {
    const groups = seeds.map((count) => ({ runs: Array(count).fill({}) }));
    assert.equal(chooseBand('auto', groups), band, String(seeds));
    assert.equal(chooseBand('std', groups), 'std', String(seeds));
  }
});

test('turns and errors of a run are marked once per step', () => {
  const event = (step, kind, level, message) => ({ step, kind, level, message });
  const events = [
    event(9, 'alert', 'error', 'skipped'),
    event(4, 'reference', 'info', 'replaced'),
    event(4, 'checkpoint', 'info', 'continued'),
    event(4, 'checkpoint', 'info', 'continued'),
    event(5, 'data', 'warning', 'm'),
    event(null, 'reference', 'info', 'm'),
  ];
  assert.deepEqual(makeMarks(events), [
    { step: 4, text: 'replaced; continued' },
    { step: 9, text: 'skipped' },
  ]);
});
