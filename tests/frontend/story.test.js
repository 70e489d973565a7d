import { test } from 'node:test';
import assert from 'node:assert/strict';
import { arrangeCauses, tellStory } from '../../frontend/src/lib/runs/story.js';

const FALLEN = /** @type {any} */ ({
  verdict: 'collapsed',
  goal: 'reward/accuracy',
  best: 0.204,
  best_step: 15,
  end: 0.01,
  note: '',
  onset: { healthy: 13, sick: 15 },
  fall: { healthy: 15, sick: 20 },
  first_signals: ['kl/k3'],
});
/** @param {number} step of the best recorded value */
const recorded = (step) =>
  /** @type {any} */ ({
    status: 'finished',
    summary: { last: { 'reward/accuracy': 0 }, best: { 'reward/accuracy': { value: 0.336, step } } },
  });

test('a fall is told with recorded values, its beginning and when it was certain', () => {
  assert.deepEqual(tellStory(FALLEN, recorded(13)), [
    'reward/accuracy was best at step 13, with 0.336, and ended at 0.',
    'The fall began after step 15.',
    'By step 20 it was certain.',
    'First signal: kl/k3, between steps 13 and 15.',
  ]);
});

test('a best value from after the fall is not what the goal fell from', () => {
  assert.match(tellStory(FALLEN, recorded(90))[0], /best at about step 15, with 0.204 on average/);
});

test('remedies that a trial can carry out stand first, in the order of their causes', () => {
  const cause = (/** @type {string} */ name, /** @type {object} */ changes, explained = '') =>
    /** @type {any} */ ({ cause: name, explained_by: explained, remedy: { changes } });
  const causes = [cause('verifier', {}), cause('update_size', { 'optimizer.lr': 1 }), cause('kl', {}, 'update_size')];
  const { remedied, knobs, consequences } = arrangeCauses(causes);
  assert.deepEqual(
    remedied.map(({ cause: name }) => name),
    ['update_size', 'verifier'],
  );
  assert.equal(knobs, 1);
  assert.equal(consequences.length, 1);
});
