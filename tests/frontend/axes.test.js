import { test } from 'node:test';
import assert from 'node:assert/strict';
import {
  findLimits,
  countOutside,
  findRangeWithoutOutliers,
  withPossibleBand,
} from '../../frontend/src/charts/limits.js';
import { findPossibleRange } from '../../frontend/src/lib/metrics.js';
import { assertClose } from './assertions.js';
import { figure, series } from './series.js';

const layoutOf = (items, view) => figure(items, view).layout;

test('a log axis leaves out what has no logarithm', () => {
  const traces = figure([series()], { logY: true }).data;
  assert.deepEqual(
    traces.map(({ y }) => y),
    [[null, 1, 2]],
  );
});

test('a wide band does not hide the curves', () => {
  const item = series({ group: 'g', low: [-900, 0, 1], high: [900, 2, 3] });
  assert.deepEqual(layoutOf([item]).yaxis.autorangeoptions, { clipmin: -1, clipmax: 3 });
});

test('a band of the smallest and the largest run is shown whole', () => {
  const item = series({ group: 'g', low: [-900, 0, 1], high: [900, 2, 3] });
  assert.equal(layoutOf([item], { band: 'minmax' }).yaxis.autorangeoptions, undefined);
});

test('a band ends where no value can be, unless the curve itself goes on there', () => {
  const shares = series({ values: [0.1, 0.5, 0.9], low: [-0.2, 0.3, null], high: [0.4, 0.7, 1.2] });
  const bounded = withPossibleBand(shares, findPossibleRange({ name: 'eval/accuracy', unit: 'fraction' }));
  assert.deepEqual(
    [bounded.low, bounded.high],
    [
      [0, 0.3, null],
      [0.4, 0.7, 1],
    ],
  );
  assert.equal(withPossibleBand(shares, [0, 1]), bounded);
  const percents = series({ values: [10, 50, 90], low: [-2, 30, 80], high: [40, 70, 100] });
  assert.deepEqual(withPossibleBand(percents, [0, 1]), percents);
});

test('what a metric can be follows from its unit', () => {
  for (const [name, unit, range] of [
    ['eval/accuracy', 'fraction', [0, 1]],
    ['length/mean', 'tokens', [0, Infinity]],
    ['policy/entropy', 'nats', [0, Infinity]],
    ['kl/k1', 'nats', [-Infinity, Infinity]],
    ['critic/explained_variance', 'fraction', [-Infinity, Infinity]],
  ])
    assert.deepEqual(findPossibleRange({ name, unit }), range, name);
});

test('all panels of a run have one x range', () => {
  const sparse = series({ metric: 'eval/accuracy', x: [0, 50, 100], steps: [0, 50, 100] });
  const dense = series({ x: [1, 2, 100], steps: [1, 2, 100] });
  assert.deepEqual(layoutOf([sparse], { metric: 'eval/accuracy' }).xaxis.range, [-2, 102]);
  assert.deepEqual(layoutOf([dense]).xaxis.range, [-2, 102]);
});

test('a zoom on a log axis is given in powers of ten', () => {
  assert.deepEqual(layoutOf([series()], { logX: true, zoom: [10, 1000] }).xaxis.range, [1, 3]);
});

test('a zoom on a log axis begins at the first point that can be drawn', () => {
  const items = [series({ x: [-2, 3, 4] }), series({ x: [0, 1, 50] })];
  for (const [zoom, shown] of [
    [
      [-1, 100],
      [1, 100],
    ],
    [
      [0, 0.5],
      [0.05, 0.5],
    ],
  ])
    assertClose(layoutOf(items, { logX: true, zoom }).xaxis.range, shown.map(Math.log10), String(zoom));
});

test('a zoom with nothing that a log axis could show shows everything', () => {
  const { range, autorange } = layoutOf([series({ x: [-2, 0, 4] })], { logX: true, zoom: [-2, 0] }).xaxis;
  assert.deepEqual([range, autorange], [undefined, true]);
});

test('zoom survives new data and not another axis', () => {
  const revision = layoutOf([series()]).uirevision;
  assert.equal(layoutOf([series({ values: [5, 5, 5] })]).uirevision, revision);
  assert.notEqual(layoutOf([series()], { logY: true }).uirevision, revision);
});

const HUNDRED = Array.from({ length: 100 }, (_, i) => i);

test('outliers are values far from all others', () => {
  for (const values of [[1, 2, 3, 4, 5], Array(5).fill(1), [], [7]])
    assert.equal(findRangeWithoutOutliers(values), null, String(values));
  for (const values of [
    [...Array(100).fill(0), 90],
    [...HUNDRED, 1e9],
  ]) {
    const [low, high] = findRangeWithoutOutliers(values);
    assert.ok(low <= Math.min(...values), String(low));
    assert.ok(high < Math.max(...values) / 2, String(high));
  }
});

test('the outlier toggle cuts the axis and counts what it hides', () => {
  const steps = [...HUNDRED, 100];
  const values = [...HUNDRED.map((i) => 1 + (i % 2)), 5000];
  const spiky = series({ x: steps, steps, values, raw_points: 101 });
  assert.ok(!('range' in layoutOf([spiky]).yaxis));
  assert.ok(layoutOf([spiky], { outliers: false }).yaxis.range[1] < 3);
  const lines = [{ series: spiky }];
  const limits = findLimits(lines, { logY: false, outliers: false });
  assert.equal(countOutside(lines, limits), 1);
});

test('a range by hand is that of the axis', () => {
  assert.deepEqual(layoutOf([series()], { yRange: [0.5, 1.5] }).yaxis.range, [0.5, 1.5]);
  assertClose(layoutOf([series()], { yRange: [0.1, 10], logY: true }).yaxis.range, [-1, 1]);
});
