import { test } from 'node:test';
import assert from 'node:assert/strict';
import { badge } from '../../frontend/src/charts/badge.js';
import { series } from './series.js';

function texts(items, view = {}) {
  const plain = { smoothing: 0, logX: false, logY: false, grouped: '', requestedRuns: items.length, most: 200 };
  return badge(items, { ...plain, ...view }).map(({ text }) => text);
}

test('the badge says that all points are shown raw', () => {
  assert.deepEqual(texts([series()]), ['1 run', 'all 3 points', 'unsmoothed']);
});

test('the badge counts what the picture leaves out', () => {
  const nan = series({ raw_points: 9000, non_finite: [{ step: 3, x: 3, value: 'NaN' }] });
  assert.deepEqual(texts([nan], { smoothing: 0.6, logY: true, requestedRuns: 2 }), [
    '1 run',
    '4 of 9\u202f000 points',
    'smoothed 0.6',
    '1 not finite',
    '1 ≤ 0 not drawable',
    '1 run without data',
  ]);
});

test('the badge of means tells how many seeds', () => {
  const group = series({ n: [3, 3, 2], raw_points: 8 });
  assert.deepEqual(texts([group], { grouped: 'variant' }), [
    '1 variant, n 2–3, faint where fewer',
    'means at 3 points from 8 values',
    'unsmoothed',
  ]);
  assert.match(texts([group, group], { grouped: 'group' })[0], /^2 groups, /);
});
