import { test } from 'node:test';
import assert from 'node:assert/strict';
import { makeAxis } from '../../frontend/src/lib/runs/axes.js';
import { listMoves } from '../../frontend/src/lib/runs/moves.js';
import { assertClose } from './assertions.js';

test('a run offers the moves that the server allows', () => {
  for (const [status, requested_action, moves] of [
    ['queued', '', ['pause', 'stop']],
    ['running', '', ['pause', 'stop']],
    ['running', 'stop', ['resume']],
    ['paused', '', ['resume', 'stop']],
    ['stopped', '', ['resume']],
    ['failed', '', ['retry']],
    ['finished', '', []],
  ])
    assert.deepEqual(
      listMoves({ status, requested_action }).map(({ move }) => move),
      moves,
      `${status} ${requested_action}`,
    );
});

/** Places of values on the axis of a metric and on that of a config field. */
const positionsOf = (values) => {
  const runs = values.map((value, i) => ({ id: String(i), summary: { last: { m: value } }, config: { v: value } }));
  return ['m', 'config:v'].map((key) => runs.map(makeAxis(key, runs).toPosition));
};

test('values have places on an axis', () => {
  for (const [values, expected] of [
    [
      [1, 3, 2],
      [0, 1, 0.5],
    ],
    [
      [0.001, 0.1, 0.01],
      [0, 1, 0.5],
    ],
    [
      [5, 5],
      [0.5, 0.5],
    ],
    [
      [1, null, 2],
      [0, -0.1, 1],
    ],
  ])
    for (const places of positionsOf(values)) assertClose(places, expected, String(values));
});

test('texts stand in their order and numbers that are not finite have no place', () => {
  const [number, text] = positionsOf(['b', 'a10', 'NaN', 'a9']);
  assert.deepEqual(number, [-0.1, -0.1, -0.1, -0.1]);
  assertClose(text, [2 / 3, 1 / 3, 1, 0]);
});
