import { test } from 'node:test';
import assert from 'node:assert/strict';
import { terminalText } from '../../frontend/src/lib/text/log.js';
import { splitVisible } from '../../frontend/src/lib/text/visible.js';

const shown = (text) => splitVisible(text).map(({ text: piece, isCode }) => [piece, isCode]);

test('what would be invisible or reorder text shows its code point', () => {
  for (const [character, code] of [
    ['\u202e', 'U+202E'],
    ['\u2066', 'U+2066'],
    ['\u200b', 'U+200B'],
    ['\u200d', 'U+200D'],
    ['\ufeff', 'U+FEFF'],
    ['\u0000', 'U+0000'],
    ['\u001b', 'U+001B'],
    ['\r', 'U+000D'],
    ['\u0085', 'U+0085'],
    ['\u00ad', 'U+00AD'],
    ['\u2028', 'U+2028'],
    ['\u{e0041}', 'U+E0041'],
    ['\ud83d', 'U+D83D'],
  ])
    assert.deepEqual(
      shown(`a${character}b`),
      [
        ['a', false],
        [code, true],
        ['b', false],
      ],
      code,
    );
});

test('a log reads as a terminal would leave it', () => {
  const text = '\x1b[31mred\x1b[0m\r\nload 10%\rload 100%\nlink \x1b]8;;http://x\x07y\x1b]8;;\x07\n';
  assert.equal(terminalText(text), 'red\nload 100%\nlink y\n');
});
