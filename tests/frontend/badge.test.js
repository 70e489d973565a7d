import { test } from 'node:test';
import assert from 'node:assert/strict';
import { makeBadge } from '../../frontend/src/charts/badge.js';
import { series } from './series.js';

const view = (items, changes) => ({
  smoothing: 0,
  isSmoothedApart: false,
  logX: false,
  logY: false,
  grouped: '',
  band: '',
  requestedRuns: items.length,
  maxRuns: 200,
  ...changes,
});
const texts = (items, changes) => makeBadge(items, view(items, changes)).map(({ text }) => text);
const unusual = (items, changes) =>
  makeBadge(items, view(items, changes))
    .filter(({ isUsual }) => !isUsual)
    .map(({ text }) => text);

test('a chart of which all points are shown raw has nothing unusual', () => {
  assert.deepEqual(texts([series()]), ['1 run', 'all 3 points', 'unsmoothed']);
  assert.deepEqual(unusual([series()]), []);
});

test('the badge counts what the picture leaves out', () => {
  const nan = series({ raw_points: 9000, non_finite: [{ step: 3, x: 3, value: 'NaN' }] });
  const changes = { smoothing: 0.6, logY: true, requestedRuns: 2 };
  const left = ['1 not finite', '1 ≤ 0 not drawable', '1 run without data'];
  assert.deepEqual(texts([nan], changes), ['1 run', '4 of 9\u202f000 points', 'smoothed 0.6', ...left]);
  assert.deepEqual(unusual([nan], changes), left);
});

test('the badge of means tells how many seeds, and warns only where some are missing', () => {
  const fewer = series({ n: [3, 3, 2], raw_points: 8 });
  const grouped = { grouped: 'variant', band: 'minmax' };
  assert.deepEqual(texts([fewer], grouped), [
    '1 variant',
    'band: min to max',
    'n 2–3, faint where fewer',
    'means at 3 points from 8 values',
    'unsmoothed',
  ]);
  assert.deepEqual(unusual([fewer], grouped), ['n 2–3, faint where fewer']);
  assert.deepEqual(unusual([series({ n: [3, 3, 3] }), series({ n: [3, 3, 3] })], grouped), []);
  assert.deepEqual(unusual([series({ n: [3, 3, 3] }), series({ n: [2, 2, 2] })], grouped), ['n 2–3']);
});

test('a chart that is smoothed otherwise than the page says so', () => {
  assert.deepEqual(unusual([series()], { smoothing: 0.9, isSmoothedApart: true }), ['smoothed 0.9']);
});
