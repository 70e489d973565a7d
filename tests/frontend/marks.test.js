import { test } from 'node:test';
import assert from 'node:assert/strict';
import { only } from './assertions.js';
import { figure, series } from './series.js';

const onset = (changes = {}) => ({ run: 'r', from: 1, to: 2, text: '<b>r</b>, collapsed', ...changes });
const onsetTraces = (items, view) =>
  figure(items, { theme: { bad: 'rgb(200, 10, 20)' }, ...view }).data.filter(({ meta }) => meta.role === 'onset');

test('events are drawn where their steps lie', () => {
  const marks = [
    { step: 2, text: 'reference <b>replaced</b>' },
    { step: 3, text: 'continued' },
  ];
  const traces = figure([series()], { marks }).data;
  assert.equal(traces.length, 2);
  const [bySteps] = traces;
  assert.deepEqual(
    [bySteps.x, bySteps.y],
    [
      [2, 2, null, 3, 3, null],
      [0, 1, null, 0, 1, null],
    ],
  );
  assert.equal(bySteps.text[0], 'reference &lt;b&gt;replaced&lt;/b&gt;');
  const [byTokens] = figure([series({ x: [10, 20, 40] })], { marks, xKind: 'tokens' }).data;
  assert.deepEqual(byTokens.x, [20, 20, null, 20, 20, null]); // step 3 has no point: the last one before it
});

test('the onset of a single run is a band with a word', () => {
  const band = only(onsetTraces([series()], { onsets: [onset()] }));
  assert.deepEqual(band.x.slice(0, 4), [1, 1, 2, 2]);
  assert.deepEqual([band.text.at(-1), band.fillcolor], [' onset', 'rgba(200,10,20,0.16)']);
  assert.equal(band.hovertext, '&lt;b&gt;r&lt;/b&gt;, collapsed');
});

test('a mean shows the onsets of its runs as one band, along steps only', () => {
  const mean = series({ run: null, group: 'g', runs: ['r', 's'] });
  const onsets = [onset(), onset({ run: 's', from: 4, to: 6 }), onset({ run: 'gone', to: 9 })];
  const band = only(onsetTraces([mean], { onsets }));
  assert.deepEqual([band.x[0], band.x[2]], [1, 6]);
  assert.match(band.hovertext, /2 runs fell, onsets between steps 1 and 6/);
  assert.deepEqual(onsetTraces([mean], { onsets: [onset()], xKind: 'wall' }), []);
});
