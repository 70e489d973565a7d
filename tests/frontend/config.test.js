import { test } from 'node:test';
import assert from 'node:assert/strict';
import { scaleDifferences, findScalesApart } from '../../frontend/src/lib/runs/comparable.js';
import { findDifferences, formatField, groupDifferences } from '../../frontend/src/lib/runs/config.js';
import {
  toMarkdown,
  makeConfigColumns,
  makeFieldRows,
  makeMeaningRows,
  findSameFields,
} from '../../frontend/src/lib/runs/differences.js';

const reward = (changes = {}) => ({
  rewards: [{ name: 'correctness', weight: 1, map: '0/1', ...changes }],
  seed: 0,
});

test('only fields that differ are listed', () => {
  const configs = [
    { a: { b: 1, c: [1] }, d: null },
    { a: { b: 2, c: [1] }, d: null, e: true },
  ];
  assert.deepEqual(
    findDifferences(configs).map(({ path }) => path),
    ['a.b', 'e'],
  );
});

test('a field that varies inside a variant shows all its values', () => {
  const groups = [
    {
      name: 'x',
      configs: [
        { lr: 1, seed: 0 },
        { lr: 2, seed: 1 },
      ],
    },
    { name: 'y', configs: [{ lr: 1, seed: 0 }] },
  ];
  assert.deepEqual(groupDifferences(groups), [{ path: 'lr', cells: [[1, 2], [1]] }]);
});

test('no field that differs looks the same', () => {
  for (const [a, b] of [
    [{}, null],
    [[], {}],
    ['', null],
    [null, 0],
    [[{ name: 'a' }], []],
    [[1], ['a']],
  ]) {
    const rows = groupDifferences([
      { name: 'a', configs: [{ f: a }] },
      { name: 'b', configs: [{ f: b }] },
    ]);
    assert.ok(rows.length, JSON.stringify([a, b]));
    for (const { cells } of rows) assert.notEqual(...cells.map(([value]) => formatField(value)));
  }
});

test('distinct configs are columns and their meaning is said', () => {
  const groups = [
    ['a', 1],
    ['b', 2],
    ['c', 1],
  ].map(([name, lr]) => ({ name, runs: [{ config: { lr, g: 4, seed: 0 } }] }));
  const { paths, columns } = makeConfigColumns(groups);
  assert.deepEqual(paths, ['lr']);
  assert.deepEqual(
    columns.map(({ names }) => names),
    [['a', 'c'], ['b']],
  );
  assert.deepEqual(makeFieldRows(paths, columns), [{ label: 'lr', texts: ['1', '2'] }]);
  const meanings = makeMeaningRows([
    { formula: 'J', formula_legend: [{ symbol: 'r', meaning: '0 to 1' }], formula_notes: [] },
    { formula: 'J', formula_legend: [{ symbol: 'r', meaning: '-1 to 1' }], formula_notes: ['cut'] },
  ]);
  assert.deepEqual(meanings, [
    { label: 'r', texts: ['0 to 1', '-1 to 1'] },
    { label: 'cut', texts: ['–', 'yes'] },
  ]);
  assert.deepEqual(findSameFields(columns[0].config, paths), [{ path: 'g', text: '4' }]);
  const markdown = toMarkdown(['x|y'], [{ label: 'a_b', texts: ['<b>\n2'] }]);
  assert.equal(markdown, '| field | x\\|y |\n| --- | --- |\n| a\\_b | \\<b\\> 2 |\n');
});

test('fields that only some configs have come after those of all', () => {
  const configs = [
    { kl: { type: 'none' }, lr: 1 },
    { kl: { type: 'k3', coef: 0.1 }, lr: 2 },
  ];
  const groups = configs.map((config, i) => ({ name: String(i), runs: [{ config }] }));
  assert.deepEqual(makeConfigColumns(groups).paths, ['kl.type', 'lr', 'kl.coef']);
});

const METRICS = [
  ['reward/mean', { name: 'reward/mean', scale: ['rewards', 'length.penalty'] }],
  ['reward/correctness/mean', { name: 'reward/<term>/mean', scale: ['rewards'] }],
  ['eval/accuracy', { name: 'eval/accuracy', scale: [] }],
];

test('a metric is comparable where its scale is the same', () => {
  for (const [change, apart] of [
    [{ map: '-1/1' }, [true, true, false]],
    [{ weight: 2 }, [true, false, false]],
    [{ timeout_seconds: 9 }, [false, false, false]],
  ]) {
    const configs = [reward(), reward(change)];
    const differing = METRICS.map(([metric, about]) => scaleDifferences(metric, about, configs).length > 0);
    assert.deepEqual(differing, apart, JSON.stringify(change));
  }
});

test('rewards of runs of two origins are not comparable', () => {
  for (const [origins, apart] of [
    [
      ['', 'trl'],
      [true, true, false],
    ],
    [
      ['trl', 'verl'],
      [true, true, false],
    ],
    [
      ['trl', 'trl'],
      [false, false, false],
    ],
  ]) {
    const runs = origins.map((origin) => ({ origin, config: {} }));
    const differing = METRICS.map(([metric, about]) => findScalesApart(metric, about, runs).length > 0);
    assert.deepEqual(differing, apart, String(origins));
  }
});
