import { test } from 'node:test';
import assert from 'node:assert/strict';
import { countText, computeHalf, readLines } from '../../frontend/src/lib/reading.js';
import { assertClose, only } from './assertions.js';

const LOOK = { colour: '#112233', dash: 'solid' };

/** A run's series; values that are not finite are spelled and stand apart, as in the API. */
function series(values, { steps = values.map((_, i) => i), run = 'r', ...changes } = {}) {
  const points = values.map((value, i) => ({ step: steps[i], x: steps[i], value }));
  const finite = points.filter(({ value }) => typeof value === 'number');
  const finiteSteps = finite.map(({ step }) => step);
  return {
    run,
    name: run,
    metric: 'm',
    x: finiteSteps,
    steps: finiteSteps,
    values: finite.map(({ value }) => value),
    non_finite: points.filter(({ value }) => typeof value === 'string'),
    raw_points: points.length,
    ...changes,
  };
}

const line = (item, changes = {}) => ({ series: item, name: item.name, look: LOOK, role: 'main', ...changes });

test('a value is the recorded one at the nearest step at or below', () => {
  const lines = [line(series([1, 2, 4], { steps: [0, 5, 10] }))];
  for (const [x, value, step, isOlder] of [
    [9, 2, 5, true],
    [10, 4, 10, false],
  ]) {
    const row = only(readLines(lines, x).rows);
    assert.deepEqual([row.recorded.value, row.recorded.step, row.isOlder], [value, step, isOlder]);
  }
});

test('lines are sorted by value and those without one come last', () => {
  const lines = [
    line(series([0.1], { run: 'low' })),
    line(series([0, 'NaN'], { run: 'nan' })),
    line(series([5], { steps: [7], run: 'later' })),
    line(series([0.9], { run: 'high' })),
    line(series([0, 'Infinity'], { run: 'up' })),
  ];
  const { rows } = readLines(lines, 1);
  assert.deepEqual(
    rows.map(({ name }) => name),
    ['up', 'high', 'low', 'nan', 'later'],
  );
  assert.equal(rows.at(-1).recorded, null);
});

test('the difference is that of recorded values', () => {
  const lines = [line(series([3], { run: 'a' })), line(series([1], { run: 'b' })), line(series(['NaN'], { run: 'c' }))];
  const { rows, baseline } = readLines(lines, 0, 'b');
  assert.deepEqual(
    rows.map(({ name, delta }) => [name, delta]),
    [
      ['a', 2],
      ['b', null],
      ['c', null],
    ],
  );
  assert.equal(baseline, 'b');
});

test('a baseline that is gone is told and there are no differences', () => {
  const lines = [line(series([3], { run: 'a' })), line(series([1], { run: 'b' }))];
  const { rows, isBaselineMissing } = readLines(lines, 0, 'deleted');
  assert.equal(isBaselineMissing, true);
  assert.deepEqual(
    rows.map(({ delta }) => delta),
    [null, null],
  );
});

test('smoothing changes no recorded value and is marked', () => {
  const lines = [line(series([1, 1.5, 1.7])), line(series([1, 2, 2]), { role: 'raw' })];
  const { rows, isSmoothed } = readLines(lines, 2);
  const { recorded, smoothed } = only(rows);
  assert.deepEqual([recorded.value, smoothed.value, isSmoothed], [2, 1.7, true]);
});

test('a mean says how many of its runs count', () => {
  const mean = series([1, 2], { run: null, group: 'g', runs: ['a', 'b', 'c'], n: [3, 2], gaps: [] });
  assert.equal(countText(readLines([line(mean)], 1).rows[0]), '2 of 3');
});

test('without a position a value is the end of the line, as the service has read it', () => {
  const end = { n: 2, mean: 0.6, low: 0.5, high: 0.7 };
  const mean = series([0.1, 0.9], { run: null, group: 'g', runs: ['a', 'b', 'c'], n: [3, 2], gaps: [], end });
  const row = only(readLines([line(mean)], Infinity).rows);
  assert.deepEqual([row.recorded.value, row.recorded.step, countText(row)], [0.6, 1, '2 of 3']);
  assertClose([computeHalf(row.recorded)], [0.1]);
  const lost = series([1, 'NaN'], { end: { n: 0 } });
  assert.equal(only(readLines([line(lost)], Infinity).rows).recorded.value, 'NaN');
  assert.equal(only(readLines([line(series([1, 2]))], Infinity).rows).recorded, null);
});

function _randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

function _randomPoints(next) {
  let step = Math.floor(next() * 5);
  return Array.from({ length: Math.floor(next() * 12) }, () => {
    const value = next() < 0.25 ? ['NaN', 'Infinity', '-Infinity'][Math.floor(next() * 3)] : next();
    const point = [step, value];
    step += 1 + Math.floor(next() * 4);
    return point;
  });
}

// Seventeen halvings of a hundred thousand, and the value, the x and the step of the point.
