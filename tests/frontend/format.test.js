import { test } from 'node:test';
import assert from 'node:assert/strict';
import { csvCell } from '../../frontend/src/lib/text/csv.js';
import { formatDuration, formatDurationRange, formatValue } from '../../frontend/src/lib/text/format.js';

test('a metric value has a short spelling', () => {
  for (const [value, text] of [
    [0, '0'],
    [0.6123, '0.612'],
    [-0.5, '−0.500'],
    [36.534, '36.53'],
    [150, '150'],
    [1234567, '1.23e6'],
    [0.0002, '2e−4'],
    [1e-7, '1e−7'],
    ['NaN', 'NaN'],
    ['-Infinity', '−∞'],
    [null, '–'],
  ])
    assert.equal(formatValue(value), text, String(value));
});

test('a duration shows its two largest units', () => {
  for (const [seconds, text] of [
    [0.42, '0.4 s'],
    [59.4, '59 s'],
    [125, '2 min 05 s'],
    [7500, '2 h 05 min'],
    [null, '–'],
  ])
    assert.equal(formatDuration(seconds), text, String(seconds));
});

test('a range of time has one unit', () => {
  for (const [low, high, text] of [
    [192, 348, '3.2 – 5.8 min'],
    [183.6, 6480, 'up to 1.8 h'],
    [22, 306, '0.4 – 5.1 min'],
    [60, 60.1, '60 s'],
    [null, 60, '–'],
  ])
    assert.equal(formatDurationRange(low, high).replaceAll('\u00a0', ' '), text, `${low} to ${high}`);
});

test('a cell of a CSV runs no formula', () => {
  for (const [cell, text] of [
    ['=1+1', "'=1+1"],
    ['\t1', '"\'\t1"'],
    ['+1e5', '+1e5'],
    ['＝1', "'＝1"],
    ['a;=1', '"a;=1"'],
    ['-0.5', '-0.5'],
    [-0.5, '-0.5'],
    ['a "b", c', '"a ""b"", c"'],
    [null, ''],
  ])
    assert.equal(csvCell(cell), text, String(cell));
});
