import { test } from 'node:test';
import assert from 'node:assert/strict';
import {
  breakdownAddress,
  isExplainedByPrompts,
  readWindow,
  chooseUsualWindows,
} from '../../frontend/src/lib/breakdown.js';

test('windows are read from fields and from the steps of a panel', () => {
  for (const [text, window] of [
    ['10-20', { first: 10, last: 20 }],
    [' 7 ', { first: 7, last: 7 }],
    ['9-3', null],
    ['x', null],
    ['', null],
  ])
    assert.deepEqual(readWindow(text), window, text);
  const address = breakdownAddress('r', 'reward/mean', { zoom: [39.6, 49.2] });
  assert.match(address, /before=30-39&after=40-49/);
  assert.doesNotMatch(breakdownAddress('r', 'optim/grad_norm', { zoom: [0, 9] }), /before|metric/);
});

test('the first windows are those between which the metric changed most', () => {
  const steps = Array.from({ length: 60 }, (_, i) => i + 1);
  const values = steps.map((step) => (step < 40 ? 0 : -1));
  const windows = { before: { first: 30, last: 39 }, after: { first: 40, last: 49 } };
  assert.deepEqual(chooseUsualWindows(steps, values), windows);
  assert.equal(chooseUsualWindows([1], [0]), null);
  const pair = { before: { first: 5, last: 5 }, after: { first: 9, last: 9 } };
  assert.deepEqual(chooseUsualWindows([5, 9], [0, NaN]), pair);
});

test('prompts explain a change only where one was sampled in both windows and has a quarter of it', () => {
  const row = (total, before, after) => ({
    kind: 'category',
    total,
    before: { completions: before },
    after: { completions: after },
  });
  for (const [rows, isExplained] of [
    [[row(-0.3, 8, 8), row(-0.7, 8, 8)], true],
    [[row(-0.1, 8, 8), row(-0.1, 8, 8)], false],
    [[row(-0.6, 8, 0)], false],
  ])
    assert.equal(isExplainedByPrompts({ change: -1, rows }), isExplained);
});
