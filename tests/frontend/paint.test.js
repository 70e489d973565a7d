import { test } from 'node:test';
import assert from 'node:assert/strict';
import { isPainted, selectPlotted } from '../../frontend/src/charts/paint.js';
import { only } from './assertions.js';
import { figure, series } from './series.js';

const tracesOf = (lines) => figure(Array(lines).fill(series({ x: [1, 2], steps: [1, 2], values: [5, 7] }))).data;

test('more than twelve lines are painted', () => {
  assert.equal(isPainted(tracesOf(12)), false);
  assert.equal(isPainted(tracesOf(13)), true);
});

test('Plotly gets the corners of painted curves alone', () => {
  const corners = only(selectPlotted(tracesOf(13)));
  assert.deepEqual(
    [corners.x, corners.y],
    [
      [1, null, 2],
      [5, null, 7],
    ],
  );
});
