import { test } from 'node:test';
import assert from 'node:assert/strict';
import { mergeOrder, moveMetric, orderMetrics } from '../../frontend/src/components/curves/arrange.js';
import { changeTuning, tunings, applyTuning } from '../../frontend/src/components/curves/tuning.js';

test('settings in an address that make no sense are left out', () => {
  for (const text of [
    '',
    '[]',
    '7',
    '{"a":{"y":[2,1]}}',
    '{"a":{"smoothing":7}}',
    '{"a":{"evil":1}}',
    '{"a":{"y":["0",1]}}',
  ])
    assert.equal(tunings().read(text), undefined, text);
});

test('a setting of one panel leaves the others alone', () => {
  const tune = changeTuning({}, 'a', { logY: true, smoothing: 0.6 });
  const view = { log: ['x'], smoothing: 0, tune };
  const tuned = applyTuning(view, 'a');
  assert.deepEqual([tuned.log, tuned.smoothing], [['x', 'y'], 0.6]);
  const plain = applyTuning(view, '__proto__');
  assert.deepEqual([plain.log, plain.smoothing], [['x'], 0]);
  assert.deepEqual(changeTuning(tune, 'a', { logY: undefined, smoothing: undefined }), {});
});

test('the order of panels outlives panels that come and go', () => {
  assert.deepEqual(orderMetrics(['a', 'b', 'c', 'd'], ['d', 'gone', 'b']), ['a', 'd', 'c', 'b']);
  assert.deepEqual(moveMetric(['a', 'b', 'c'], 'c', 0), ['c', 'a', 'b']);
  assert.deepEqual(moveMetric(['a', 'b'], 'a', 9), ['b', 'a']);
  assert.deepEqual(mergeOrder(['x', 'b', 'a'], ['a', 'b']), ['x', 'a', 'b']);
});
