import { test } from 'node:test';
import assert from 'node:assert/strict';
import { toMarkdown, reachedText, chooseSeeds, makeSentences } from '../../frontend/src/lib/runs/matrix.js';

const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>\u202egnp.exe\u200b\x07 \\boxed{233}';

test('a name in a Markdown table ends no cell', () => {
  for (const name of [HOSTILE, '$(rm) & \\input{x} | a']) {
    const row = toMarkdown([{ name, row: { cells: {} } }], { columns: [] }).split('\n')[2];
    const cell = row.slice(1, -1).replaceAll('\\|', '');
    assert.ok(!cell.includes('|'), row);
  }
});

test('runs that do not count are not among those that reach a threshold', () => {
  const cell = { n: 2, mean: 20, low: null, high: null, versus: null, reason: '', reached: 2 };
  const row = { runs: [{ counts: true }, { counts: false }, { counts: true }] };
  const sentences = makeSentences(cell, { looks: 'planned', tests: 0 }, 'grpo', row);
  assert.equal(sentences[1], '2 of 2 reached the threshold.');
  assert.equal(reachedText(cell, row), '2 of 2 reached');
  assert.equal(reachedText({ ...cell, reached: null }, row), '');
});

test('seeds to queue fill pairs first and repeat none', () => {
  const variant = [
    { id: 'a', seed: 0 },
    { id: 'b', seed: 1 },
  ];
  const baseline = [
    { id: 'c', seed: 0 },
    { id: 'd', seed: 4 },
  ];
  assert.deepEqual(chooseSeeds(variant, baseline, 3), [
    { run: 'c', seed: 1 },
    { run: 'a', seed: 4 },
    { run: 'a', seed: 5 },
    { run: 'c', seed: 5 },
  ]);
});
