import { test } from 'node:test';
import assert from 'node:assert/strict';
import { chooseMetrics, chooseSections, withMetrics } from '../../frontend/src/lib/metric_choice.js';

const AVAILABLE = ['eval/accuracy', 'kl/k1', 'kl/k3', 'reward/mean', 'reward/std'];

test('key metrics stand above the sections that are chosen', () => {
  assert.deepEqual(chooseSections(AVAILABLE, ['key', 'kl']), [
    { section: 'key metrics', metrics: ['reward/mean', 'eval/accuracy'] },
    { section: 'kl', metrics: ['kl/k1', 'kl/k3'] },
  ]);
});

test('a choice is spelled in as few words as possible', () => {
  for (const [chosen, metrics, on, spelled] of [
    [['key'], ['kl/k1'], true, ['key', 'kl/k1']],
    [['key', 'kl/k1'], ['kl/k3'], true, ['key', 'kl']],
    [['kl'], ['kl/k1'], false, ['kl/k3']],
    [['all'], ['kl/k1', 'kl/k3'], false, ['eval', 'reward']],
    [['eval', 'reward'], ['kl/k1', 'kl/k3'], true, ['all']],
    [['key'], ['reward/mean'], false, ['eval']],
  ])
    assert.deepEqual(withMetrics(AVAILABLE, chosen, metrics, on), spelled, `${chosen} ${on ? '+' : '-'} ${metrics}`);
});

test('three hundred metrics are chosen and left out one by one', () => {
  const many = Array.from({ length: 300 }, (_, i) => `reward/term${i}/mean`);
  const one = withMetrics(many, ['all'], ['reward/term7/mean'], false);
  assert.equal(chooseMetrics(many, one).length, 299);
  assert.deepEqual(withMetrics(many, one, ['reward/term7/mean'], true), ['all']);
});
