import { test } from 'node:test';
import assert from 'node:assert/strict';
import { bySection, kindOf } from '../../frontend/src/lib/metrics.js';
import { chosenSections } from '../../frontend/src/lib/runs/summary.js';

test('the completions behind a metric are those that it measures', () => {
  for (const [metric, kind] of [
    ['reward/mean', 'train'],
    ['eval/accuracy', 'eval'],
    ['eval/sums/pass@4', 'eval/sums'],
    ['', 'train'],
  ])
    assert.equal(kindOf(metric), kind, metric);
});

test('key metrics come before chosen sections', () => {
  const available = ['loss/total', 'optim/lr', 'reward/mean', 'time/step_seconds'];
  assert.deepEqual(chosenSections(available, ['key', 'optim']), [
    { section: 'key metrics', metrics: ['reward/mean', 'loss/total'] },
    { section: 'optim', metrics: ['optim/lr'] },
  ]);
});

test('sections come in the order of the question', () => {
  const names = ['time/step_seconds', 'zebra/x', 'loss/total', 'eval/accuracy', 'reward/mean'];
  const sections = bySection(names).map(({ section }) => section);
  assert.deepEqual(sections, ['eval', 'reward', 'loss', 'time', 'zebra']);
});
