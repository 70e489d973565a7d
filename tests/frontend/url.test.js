import { test } from 'node:test';
import assert from 'node:assert/strict';
import { choice, decode, encode, flag, list, number, range, text } from '../../frontend/src/lib/url.js';
import { json } from '../../frontend/src/lib/url_json.js';

const SPEC = {
  x: choice(['step', 'wall', 'tokens']),
  smoothing: number(0, { min: 0, max: 0.999 }),
  runs: list(),
  hide: list([]),
  zoom: range(),
  q: text(),
  all: flag(),
};

test('an unreadable parameter becomes its default', () => {
  const { x, smoothing, zoom, all } = decode('?x=banana&smoothing=7&zoom=9,3&all=yes', SPEC);
  assert.deepEqual([x, smoothing, zoom, all], ['step', 0, null, false]);
});

test('a written value can be read back', () => {
  const changes = {
    x: 'tokens',
    smoothing: 0.6,
    runs: ['a', 'b,c~d', 'e~.5', '-'],
    zoom: [10, 80.5],
    q: '50 % & more',
    all: true,
  };
  assert.deepEqual(decode(encode('', changes, SPEC), SPEC), { ...changes, hide: [] });
});

test('a default is not written and other parameters stay', () => {
  assert.equal(encode('?x=wall&other=1&smoothing=0.6', { x: 'step' }, SPEC), '?other=1&smoothing=0.6');
});

test('JSON in the address that cannot be read is the default', () => {
  const { read } = json({ a: 1 });
  assert.deepEqual(read('{"b":2}'), { b: 2 });
  for (const unreadable of ['{', '[]', 'null']) assert.equal(read(unreadable), undefined, unreadable);
});
