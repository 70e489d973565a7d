import { test } from 'node:test';
import assert from 'node:assert/strict';
import { listSizes } from '../../frontend/src/lib/report.js';

test('a report gives up points, then values, then rollouts', () => {
  assert.deepEqual(
    [...listSizes(130, 30)].map(({ points, values, rollouts }) => [points, values, rollouts]),
    [
      [130, true, true],
      [65, true, true],
      [32, true, true],
      [30, true, true],
      [30, false, true],
      [30, false, false],
    ],
  );
});
