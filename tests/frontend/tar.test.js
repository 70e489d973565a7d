import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { makeArchive, findLog } from '../../frontend/src/lib/tar.js';

const file = (path, text = 'x') => ({ path, file: new Blob([text]) });

test('an archive holds every file under its path, a long one by its end', async () => {
  const long = `${'a/'.repeat(120)}é/${'b'.repeat(90)}.log`;
  const blob = makeArchive([file('run/1.log', 'step=1'), file(long, 'x'.repeat(600)), file('empty', '')]);
  const input = new Uint8Array(await blob.arrayBuffer());
  const tar = (...options) => execFileSync('tar', [...options, '-f', '-'], { input, encoding: 'utf8' });
  const names = tar('-t', '--quoting-style=literal').trimEnd().split('\n');
  assert.deepEqual([names[0], names[1].endsWith(`a/é/${'b'.repeat(90)}.log`), names[2]], ['run/1.log', true, 'empty']);
  assert.equal(tar('-x', '-O', 'run/1.log'), 'step=1');
});

test('one file is sent as it is, a directory without the weights beside its logs', async () => {
  const alone = file('1.log');
  assert.deepEqual(findLog([alone]), { name: '1.log', content: alone.file });
  assert.equal(findLog([file('1.log'), file('2.log')]).name, '1.log and 1 more');
  const { name, content } = findLog([file('run/1.log'), file('run/model.safetensors'), file('run/rollout_3.pt')]);
  assert.equal(name, 'run');
  const text = await content.text();
  assert.deepEqual([text.includes('model'), text.includes('rollout_3.pt')], [false, true]);
});
