import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readColumn, chooseUsualColumns, writeColumn } from '../../frontend/src/lib/columns.js';

test('columns are restored from the address, and anything else is ignored', () => {
  for (const column of [
    { run: '', step: 0 },
    { run: 'r', step: null },
    { run: 'r', step: 20 },
  ])
    assert.deepEqual(readColumn(writeColumn(column)), column);
  for (const text of ['', '@', 'r', 'r@x', 'a@1@2', `${'r'.repeat(65)}@1`]) assert.equal(readColumn(text), null, text);
});

test('the usual columns are the ends of the run and two other runs', () => {
  const step = (number) => ({ run: '', step: number });
  assert.deepEqual(chooseUsualColumns([0, 10, 20, 30], 10, []), [step(0), step(30)]);
  assert.deepEqual(chooseUsualColumns([0, 10], 10, ['b', 'c', 'd']), [
    step(0),
    { run: 'b', step: null },
    { run: 'c', step: null },
  ]);
  assert.deepEqual(chooseUsualColumns([10], 10, []), []);
});
