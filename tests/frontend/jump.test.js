import assert from 'node:assert/strict';
import test from 'node:test';
import { findBest, sortSections, runQuery, scoreName } from '../../frontend/src/lib/jump.js';

const place = (name) => ({ key: name, name });

test('exact, prefix and word matches come before other matches', () => {
  const names = ['objective.value.lr_factor', 'color', 'lr', 'lr-sweep', 'optimizer.lr', 'walrus'];
  assert.deepEqual(
    findBest(names.map(place), 'LR', 9).map(({ name }) => name),
    ['lr', 'lr-sweep', 'optimizer.lr', 'objective.value.lr_factor'].concat('walrus'),
  );
  assert.equal(scoreName('demo_collapse', 'collapse'), 2);
  assert.equal(scoreName('group filters keep', 'keep group'), 1);
  assert.equal(scoreName('group filters', 'keep group'), 0);
});

test('the section with the best name comes first, help last, and empty ones are left out', () => {
  const sections = [
    { title: 'Help', places: [place('demo')], isLast: true },
    { title: 'Runs', places: [place('brave-demo')] },
    { title: 'Pages', places: [] },
    { title: 'Experiments', places: [place('demo')] },
  ];
  assert.deepEqual(
    sortSections(sections, 'demo').map(({ title }) => title),
    ['Experiments', 'Runs', 'Help'],
  );
});

test('words that are typed are texts of the query, whatever they are', () => {
  assert.equal(runQuery(' a  or'), '"a" "or"');
  assert.equal(runQuery('lr="x\\'), String.raw`"lr=\"x\\"`);
  assert.equal(runQuery('w '.repeat(50)).split(' ').length, 8);
});
