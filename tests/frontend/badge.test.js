import { test } from 'node:test';
import assert from 'node:assert/strict';
import { badge } from '../../frontend/src/charts/badge.js';
import { notesOf, shownOf } from '../../frontend/src/components/curves/shown.js';
import { series } from './series.js';

function texts(items, view = {}) {
  const plain = { smoothing: 0, logX: false, logY: false, grouped: '', requestedRuns: items.length, most: 200 };
  return badge(items, { ...plain, ...view }).map(({ text }) => text);
}

test('the badge says that all points are shown raw', () => {
  assert.deepEqual(texts([series()]), ['1 run', 'all 3 points', 'unsmoothed']);
});

test('a page without groups has no means', () => {
  const view = { x: 'step', log: [], smoothing: 0, zoom: null };
  const notes = notesOf([series()], [], shownOf('loss/total', view), view, 1);
  assert.deepEqual(
    notes.map(({ text }) => text),
    ['1 run', 'all 3 points', 'unsmoothed'],
  );
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

test('the badge counts the points that a logarithmic step axis leaves out', () => {
  assert.deepEqual(texts([series({ x: [-1, 0, 2] })], { logX: true }), [
    '1 run',
    'all 3 points',
    'unsmoothed',
    '2 points at x ≤ 0 not drawable',
  ]);
});

test('the badge counts what lies outside of the axis and names the green band', () => {
  const view = { outside: { values: 2, isBandCut: true }, healthy: [0, null] };
  assert.deepEqual(texts([series()], view).slice(-3), [
    '2 points outside the y range',
    "band cut at the panel's edge",
    'green: healthy from 0',
  ]);
});

test('the badge says that more runs were asked for than can be drawn', () => {
  assert.equal(texts(Array(200).fill(series()), { requestedRuns: 250 }).at(-1), 'showing 200 of 250 runs');
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

test('the badge of means counts no values of single runs as points', () => {
  const group = series({ n: [2, 1, 2], raw_points: 6, non_finite: [{ step: 2, x: 2, value: 'NaN' }] });
  assert.deepEqual(texts([group], { grouped: 'variant' }).slice(1), [
    'means at 3 points from 6 values',
    'unsmoothed',
    '1 not finite',
  ]);
});
