import { test } from 'node:test';
import assert from 'node:assert/strict';
import { merged, moved, ordered } from '../../frontend/src/components/curves/arrange.js';
import { tunedTo, tunings, viewOf } from '../../frontend/src/components/curves/tuning.js';

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
  const tune = tunedTo({}, 'a', { logY: true, smoothing: 0.6 });
  const view = { log: ['x'], smoothing: 0, tune };
  const tuned = viewOf(view, 'a');
  assert.deepEqual([tuned.log, tuned.smoothing], [['x', 'y'], 0.6]);
  const plain = viewOf(view, '__proto__');
  assert.deepEqual([plain.log, plain.smoothing], [['x'], 0]);
  assert.deepEqual(tunedTo(tune, 'a', { logY: undefined, smoothing: undefined }), {});
});

test('the order of panels outlives panels that come and go', () => {
  assert.deepEqual(ordered(['a', 'b', 'c', 'd'], ['d', 'gone', 'b']), ['a', 'd', 'c', 'b']);
  assert.deepEqual(moved(['a', 'b', 'c'], 'c', 0), ['c', 'a', 'b']);
  assert.deepEqual(moved(['a', 'b'], 'a', 9), ['b', 'a']);
  assert.deepEqual(merged(['x', 'b', 'a'], ['a', 'b']), ['x', 'a', 'b']);
});
