import { test } from 'node:test';
import assert from 'node:assert/strict';
import { findMetricKind } from '../../frontend/src/lib/metrics.js';

test('the completions behind a metric are those that it measures', () => {
  for (const [metric, kind] of [
    ['reward/mean', 'train'],
    ['eval/accuracy', 'eval'],
    ['eval/sums/pass@4', 'eval/sums'],
    ['', 'train'],
  ])
    assert.equal(findMetricKind(metric), kind, metric);
});
