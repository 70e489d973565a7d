import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spread } from '../../frontend/src/lib/runs/stats.js';
import { assertClose } from './assertions.js';

test("the interval over three seeds is Student's", () => {
  const interval = spread([1, 2, 3]);
  assert.deepEqual(Object.keys(interval).sort(), ['half', 'mean', 'n', 'std']);
  const { n, mean, std, half } = interval;
  assertClose([n, mean, std, half], [3, 2, 1, 4.3027 / Math.sqrt(3)]);
});

test('one seed has a mean and no interval', () => {
  assert.deepEqual(spread([0.5]), { n: 1, mean: 0.5, std: null, half: null });
});
