import { test } from 'node:test';
import assert from 'node:assert/strict';
import {
  listAlternatives,
  splitChunks,
  chooseLevelClass,
  findLevel,
  readTokenAddress,
  readValue,
  readValues,
} from '../../frontend/src/lib/text/tokens.js';

test('colours mean the same in every completion', () => {
  for (const [by, value, level] of [
    ['logprob', 0, 0],
    ['logprob', -2.5, 4],
    ['logprob', -5, 8],
    ['logprob', -80, 8],
    ['logprob', '-Infinity', 8],
    ['logprob', null, null],
    ['logprob', 'NaN', null],
    ['entropy', 0, 0],
    ['entropy', 2.5, 8],
    ['entropy', null, null],
  ])
    assert.equal(findLevel(by, value), level, `${by} ${value}`);
});

test('scales with a sign have two halves', () => {
  for (const [by, value, level] of [
    ['ratio', 2, 8],
    ['ratio', 0.5, -8],
    ['ratio', 1, 0],
    ['clipped', -1, -8],
    ['clipped', 2, 4],
    ['loss', -1, -8],
    ['loss', 1e-3, 4],
    ['loss', 1e-7, 0],
    ['kl', -1, 0],
    ['correction', 0, -8],
    ['advantage', 'NaN', null],
  ])
    assert.equal(findLevel(by, value), level, `${by} ${value}`);
  assert.deepEqual([-3, 0, null].map(chooseLevelClass), ['cold-3', 'heat-0', 'is-masked']);
});

test('a masked token has no value whatever is stored', () => {
  assert.equal(readValue([-1, -2], [0, 1], 0), null);
  assert.equal(readValue([-1, -2], [0, 1], 1), -2);
  assert.equal(readValue([-1], undefined, 0), -1);
  assert.equal(readValue(undefined, undefined, 0), null);
});

test('mismatch is the trainer less the sampler', () => {
  const arrays = { logprob: [-1, 'NaN'], policy_logprob: [-0.5, -1], old_logprob: [-0.75, -1] };
  assert.deepEqual(readValues({ tokens: ['a', 'b'], advantage: 1, arrays }, 'mismatch'), [0.25, 'NaN']);
});

test('a long completion is drawn in pieces', () => {
  const pieces = splitChunks(Array(100_000).fill('word '), 20_000);
  assert.equal(pieces[0][0], 0);
  assert.equal(pieces.at(-1)[1], 100_000);
  for (const [i, [begin]] of pieces.slice(1).entries()) assert.equal(begin, pieces[i][1]);
  assert.ok(Math.max(...pieces.map(([begin, end]) => end - begin)) <= 4000);
});

test('an address of a token is read or ignored', () => {
  assert.deepEqual(['2.17', '0.0'].map(readTokenAddress), [
    [2, 17],
    [0, 0],
  ]);
  for (const text of ['x', '1.2.3', '-1.4', '']) assert.equal(readTokenAddress(text), null, text);
});

test('alternatives are named as text and what was cut off is left out', () => {
  const completion = {
    token_ids: [5, 7, 9],
    alternatives: {
      ids: [
        [5, 6],
        [6, 7],
      ],
      logprobs: [
        [Math.log(0.75), Math.log(0.25)],
        [Math.log(0.5), '-Infinity'],
      ],
      strings: { 6: '<b>\n', 7: ' ' },
    },
  };
  const rowsAt = (at) => listAlternatives(completion, at).map((alternative) => Object.values(alternative));
  assert.deepEqual([0, 1, 2].map(rowsAt), [
    [
      [5, null, '75.0 %', true],
      [6, '<b>⏎', '25.0 %', false],
    ],
    [[6, '<b>⏎', '50.0 %', false]],
    [],
  ]);
  assert.deepEqual(listAlternatives({ token_ids: [5], alternatives: null }, 0), []);
});
