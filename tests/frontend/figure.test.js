import { test } from 'node:test';
import assert from 'node:assert/strict';
import { makeBandOutline, findIsolatedSizes, isOutside, makePath } from '../../frontend/src/charts/figure.js';
import { only } from './assertions.js';
import { figure, series } from './series.js';

test('a loss of zero is drawn', () => {
  const trace = only(figure([series()]).data);
  assert.deepEqual(
    [trace.x, trace.y],
    [
      [1, 2, 4],
      [0, 1, 2],
    ],
  );
});

test('a line breaks where a value is not finite', () => {
  const [line, marks, ...furtherTraces] = figure([series({ non_finite: [{ step: 3, x: 3, value: 'NaN' }] })]).data;
  assert.deepEqual(furtherTraces, []);
  assert.deepEqual(line.y, [0, 1, null, 2]);
  assert.deepEqual([marks.x, marks.text, marks.yaxis], [[3], ['NaN'], 'y2']);
});

test('each kind of non-finite value has its own mark', () => {
  for (const [value, symbol] of [
    ['NaN', 'x-thin'],
    ['Infinity', 'triangle-up'],
    ['-Infinity', 'triangle-down'],
  ]) {
    const [, marks] = figure([series({ non_finite: [{ step: 3, x: 3, value }] })]).data;
    assert.deepEqual(marks.marker.symbol, [symbol], value);
  }
});

test('a lone point between gaps is visible', () => {
  assert.deepEqual(findIsolatedSizes([1, null, 2, null, 3, 4]), [5, 0, 5, 0, 0, 0]);
});

test('a band stops where one seed is left', () => {
  const band = series({ low: [0, 0.5, null], high: [1, 1.5, null] });
  assert.deepEqual(makeBandOutline(band), { x: [1, 2, 2, 1], y: [1, 1.5, 0.5, 0] });
});

test('a name is text and never markup', () => {
  const name = '<a href="javascript:alert(1)">x</a> & %{y}';
  const trace = only(figure([series({ name })]).data);
  assert.ok(!trace.name.includes('<a'), trace.name);
  assert.ok(!trace.hovertemplate.includes('<a'), trace.hovertemplate);
  assert.ok(!trace.hovertemplate.includes('%{y}<'), trace.hovertemplate);
});

test('a window is empty if no curve crosses it', () => {
  const curve = { x: [1, 2], non_finite: [] };
  for (const [zoom, outside] of [
    [[50, 60], true],
    [[-9, -1], true],
    [[1.2, 1.8], false],
  ])
    assert.equal(isOutside([curve], zoom), outside, String(zoom));
});

test('gaps are merged into a path in the order of their positions', () => {
  const path = makePath({
    x: [1, 2, 4],
    values: [10, 20, 40],
    steps: [1, 2, 4],
    non_finite: [
      { step: 3, x: 3, value: 'NaN' },
      { step: 0, x: 0, value: 'NaN' },
    ],
  });
  assert.deepEqual(path, {
    x: [0, 1, 2, 3, 4],
    y: [null, 10, 20, null, 40],
    steps: [0, 1, 2, 3, 4],
    indexes: [-1, 0, 1, -1, 2],
  });
});

test('a mean tells its seeds and its band', () => {
  const item = series({ group: 'g', n: [3, 3, 1], low: [0, 0.5, null], high: [1, 1.5, null] });
  const traces = figure([item]).data;
  assert.equal(traces.length, 3);
  assert.deepEqual(traces[1].text, ['n 3, 0 to 1', 'n 3, 0.500 to 1.500', 'n 1']);
});

test('a mean is faint where fewer runs count and says how many', () => {
  const item = series({
    run: null,
    group: 'g',
    runs: ['a', 'b', 'c'],
    x: [1, 2, 3, 4],
    steps: [1, 1, 1, 1],
    values: [1, 2, 3, 4],
    n: [3, 3, 1, 1],
    gaps: [],
    non_finite: [{ step: 1, x: 1.5, value: 'NaN' }],
  });
  const [few, main, marks, ...furtherTraces] = figure([item], { xKind: 'wall' }).data;
  assert.deepEqual(furtherTraces, []);
  assert.deepEqual([main.y, main.meta.role], [[1, 2, null, null], 'main']);
  assert.deepEqual(marks.x, [1.5]);
  assert.deepEqual([few.y, few.opacity], [[null, 2, 3, 4], 0.5]);
  assert.deepEqual(few.text, ['n 3', 'n 3', 'n 1 of 3', 'n 1 of 3']);
  assert.ok(!few.hovertemplate.includes('step'), few.hovertemplate);
});

test('a mean has a gap where no run has a value', () => {
  const gap = [{ step: 3, x: 3, value: 'NaN' }];
  const traces = figure([series({ run: null, group: 'g', n: [1, 1, 1], gaps: gap, non_finite: gap })]).data;
  assert.equal(traces.length, 2);
  assert.deepEqual(traces[0].y, [0, 1, null, 2]);
});
