import { test } from 'node:test';
import assert from 'node:assert/strict';
import { applyCompletion, findCompletion, markPosition } from '../../frontend/src/lib/runs/query.js';

const FIELDS = [
  { name: 'status', type: 'text', values: ['finished', 'failed'] },
  { name: 'tag', type: 'tags', values: ['old one', 'new'] },
  { name: 'created', type: 'date', values: [] },
  { name: 'eval/accuracy', type: 'metric', values: [] },
  { name: 'config.optimizer.lr', type: 'config', values: [] },
  { name: 'config.preset', type: 'config', values: ['dapo', 'grpo'] },
];

test('completions fit the place in the query', () => {
  for (const [query, first] of [
    ['sta', ['status']],
    ['lr', ['config.optimizer.lr']],
    ['status ', ['=', '!=', '~']],
    ['status = f', ['finished', 'failed']],
    ['status not in (', ['finished', 'failed']],
    ['status in (failed, fi', ['finished']],
    ['status in (failed', []],
    ['tag = ', ['"old one"', 'new']],
    ['preset = d', ['dapo']],
    ['created > ', ['-1d', '-7d', '-30d']],
    ['best(', ['eval/accuracy']],
    ['best(eval/accuracy) ', ['>', '>=', '<']],
    ['otter ', ['and', 'or']],
    ['(status = failed) a', ['and']],
    ['not eval', ['eval/accuracy']],
    ['name = "a', []],
  ]) {
    const options = findCompletion(query, query.length, FIELDS).options.map(({ text }) => text);
    assert.deepEqual(options.slice(0, Math.max(1, first.length)), first, query);
  }
});

test('a completion takes the place of what is typed', () => {
  const text = 'sta and tag = new';
  const completion = findCompletion(text, 3, FIELDS);
  assert.deepEqual(applyCompletion(text, completion, completion.options[0]), {
    text: 'status and tag = new',
    caret: 6,
  });
});

test('a caret stands below the place of an error', () => {
  assert.equal(markPosition('😀 = x', 4), '😀 = x\n    ^');
  const [line, caret] = markPosition('a '.repeat(100) + '!', 200).split('\n');
  assert.equal(line[caret.indexOf('^')], '!');
});
