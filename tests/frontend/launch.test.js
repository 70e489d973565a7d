import { test } from 'node:test';
import assert from 'node:assert/strict';
import { describeSandboxGaps } from '../../frontend/src/lib/service/workers.js';
import { extendBeyondFork, makeLadder, parseSeeds, makeRequests } from '../../frontend/src/lib/launch/form.js';
import { filterOffers } from '../../frontend/src/lib/launch/offers.js';
import { readTyped } from '../../frontend/src/lib/launch/schema.js';
import { meansSeveral } from '../../frontend/src/lib/launch/sweep.js';

test('what is typed becomes a value or stays for the server to refuse', () => {
  for (const [node, typed, value] of [
    [{ type: 'integer' }, '12', 12],
    [{ type: 'number' }, '3e-4', 3e-4],
    [{ type: 'number' }, 'much', 'much'],
    [{ type: 'number' }, '', ''],
    [{ type: 'string' }, '12', '12'],
    [{ anyOf: [{ type: 'integer' }, { const: 'max_new_tokens' }] }, '64', 64],
    [{ anyOf: [{ type: 'integer' }, { const: 'max_new_tokens' }] }, 'max_new_tokens', 'max_new_tokens'],
    [{ type: 'object' }, '{"min_terms": 2}', { min_terms: 2 }],
    [{ oneOf: [{ type: 'number' }, { type: 'object' }] }, '0.04', 0.04],
    [{ oneOf: [{ type: 'number' }, { type: 'object' }] }, '{"math": 0}', { math: 0 }],
    [{ type: 'object' }, '{"min_terms": ', '{"min_terms": '],
    [{ anyOf: [{ type: 'number' }, { $ref: '#/$defs/LengthAdaptive' }] }, '{"alpha": 1}', { alpha: 1 }],
  ])
    assert.deepEqual(readTyped(node, typed), value, `${JSON.stringify(node)} ${typed}`);
});

test('a fork of a run that has ended there trains as many steps again', () => {
  for (const [step, steps] of [
    [25, 40],
    [40, 80],
    [50, 90],
  ])
    assert.deepEqual(extendBeyondFork({ steps: 40, seed: 1 }, step), { steps, seed: 1 }, String(step));
});

test('seeds are lists and ranges', () => {
  for (const [text, seeds] of [
    ['0,1,2', [0, 1, 2]],
    ['0-3', [0, 1, 2, 3]],
    ['7 5; 5', [7, 5]],
    ['2..4,9', [2, 3, 4, 9]],
  ])
    assert.deepEqual(parseSeeds(text), { seeds, error: '' }, text);
});

test('an invalid list of seeds is reported', () => {
  for (const text of ['', 'a', '1.5', '-1', '5-2', '0-100000', '2147483648']) {
    const { seeds, error } = parseSeeds(text);
    assert.deepEqual(seeds, [], text);
    assert.ok(error, text);
  }
});

test('a ladder climbs to the variant', () => {
  const plain = { variant: { name: 'base' }, full: { a: { type: 'x', b: 1 }, c: 2, l: [{ w: 1 }] } };
  const knobs = [
    { path: 'c', after: 3 },
    { path: 'a.b', after: 5 },
    { path: 'l.0.w', after: 9 },
  ];
  const rungs = [
    { name: 'base' },
    { name: 'base + c', c: 3 },
    { name: 'base + c + b', c: 3, a: { type: 'x', b: 5 } },
    { name: 'base + c + b + w', c: 3, a: { type: 'x', b: 5 }, l: [{ w: 9 }] },
  ];
  assert.deepEqual(makeLadder({ name: 'v' }, { ...plain, isInForm: false }, knobs, false), rungs);
  assert.deepEqual(makeLadder({ name: 'v' }, { ...plain, isInForm: true }, knobs, true), rungs.slice(1, 3));
});

test('a list or a range means several values', () => {
  for (const [text, several] of [
    ['1e-4, 3e-4', true],
    ['1..5', true],
    ['0.5', false],
    ['1e-4', false],
    ['1,', true],
    ['.5..1', true],
  ])
    assert.equal(meansSeveral(text), several, text);
});

const OFFERS = [
  { name: 'grpo', title: 'GRPO', family: 'relatives', note: 'Group means. As Dr. GRPO does not. End.' },
  { name: 'dr_grpo', title: 'Dr. GRPO', family: 'relatives', note: 'No deviation.' },
  { name: 'cispo', title: 'CISPO', family: 'others', note: 'Caps what GRPO clips.' },
];

test('offers match by name first and then by description', () => {
  for (const [typed, names] of [
    ['', ['grpo', 'dr_grpo', 'cispo']],
    ['GRPO dr', ['dr_grpo', 'grpo']],
    ['caps', ['cispo']],
    ['x', []],
  ])
    assert.deepEqual(
      filterOffers(OFFERS, typed).map(({ name }) => name),
      names,
      typed,
    );
});

test('each fork of several seeds is sent with its own seed and what differs from its parent', () => {
  const form = { name: '', base: {}, variants: [{ name: 'grpo' }], seeds: '1,2' };
  const fork = { run: { id: 'parent', config: { seed: 0, steps: 10 } }, step: 5 };
  assert.deepEqual(makeRequests(form, [{ seed: 0, steps: 20 }], fork), [
    { path: '/runs/parent/fork', body: { step: 5, changes: { steps: 20, seed: 1 } } },
    { path: '/runs/parent/fork', body: { step: 5, changes: { steps: 20, seed: 2 } } },
  ]);
});

test('the form says which machines run no programs', () => {
  const slot = (host, stats) => ({ host, stats, status: 'idle' });
  const missing = ['namespaces', 'landlock'];
  const refusing = slot('a', { sandbox: { on: [], missing, runs_no_programs: 'nothing hides files' } });
  const allowed = slot('b', { sandbox: { on: [], missing, runs_no_programs: '' } });
  assert.match(
    describeSandboxGaps([refusing, allowed]),
    /\. a refuses the reward code, plugins and the tool python\. Run/,
  );
  assert.doesNotMatch(describeSandboxGaps([allowed]), /refuses/);
});
