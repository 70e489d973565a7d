import { test } from 'node:test';
import assert from 'node:assert/strict';
import { makeLooks, PALETTES, makeShadedLooks, makeShades, chooseSlots } from '../../frontend/src/lib/colours.js';

// Machado, Oliveira and Fernandes 2009, severity 1.
const EYES = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  deutan: [
    [0.367, 0.861, -0.228],
    [0.28, 0.673, 0.047],
    [-0.012, 0.043, 0.969],
  ],
  protan: [
    [0.152, 1.053, -0.205],
    [0.115, 0.786, 0.099],
    [-0.004, -0.048, 1.052],
  ],
};
const TO_LMS = [
  [0.4122, 0.5363, 0.0514],
  [0.2119, 0.6807, 0.1074],
  [0.0883, 0.2817, 0.63],
];
const TO_LAB = [
  [0.2105, 0.7936, -0.0041],
  [1.978, -2.4286, 0.4506],
  [0.0259, 0.7828, -0.8087],
];
const BACKGROUNDS = { light: '#ffffff', dark: '#14181e' };

const linear = (colour) =>
  [1, 3, 5]
    .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
const dot = (weights, values) => weights.reduce((sum, weight, i) => sum + weight * values[i], 0);
const mixed = (matrix, rgb) => matrix.map((row) => Math.max(0, dot(row, rgb)));

/** Björn Ottosson's perceptual space: distance there is how different colours look. */
function oklab(rgb) {
  const roots = mixed(TO_LMS, rgb).map((value) => value ** (1 / 3));
  return TO_LAB.map((row) => dot(row, roots));
}

const distance = (a, b) => Math.hypot(...a.map((value, i) => value - b[i]));
const luminance = (colour) => dot([0.2126, 0.7152, 0.0722], linear(colour));

test('ten runs have ten colours and the eleventh is dashed', () => {
  const items = Array.from({ length: 11 }, (_, slot) => ({ key: String(slot), slot }));
  const looks = [...makeLooks(items, 'light').values()];
  assert.equal(new Set(looks.slice(0, 10).map(({ colour }) => colour)).size, 10);
  assert.deepEqual(
    looks.map(({ dash }) => dash),
    [...Array(10).fill('solid'), 'dash'],
  );
});

test('a group has the colour of its first run unless another has it', () => {
  for (const [firstSlots, slots] of [
    [
      [3, 4, 5],
      [3, 4, 5],
    ],
    [
      [3, 3, 4],
      [3, 5, 4],
    ],
    [
      [9, 9],
      [9, 0],
    ],
    [Array(11).fill(7), [7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7]],
  ])
    assert.deepEqual(chooseSlots(firstSlots), slots, String(firstSlots));
});

test('any two colours stay apart for every eye', () => {
  for (const [theme, palette] of Object.entries(PALETTES))
    for (const [eye, matrix] of Object.entries(EYES)) {
      const seen = palette.map((colour) => oklab(mixed(matrix, linear(colour))));
      const distances = seen.flatMap((a, i) => seen.slice(i + 1).map((b) => distance(a, b)));
      assert.equal(distances.length, 45);
      assert.ok(Math.min(...distances) > 0.075, `${theme}, ${eye}: ${Math.min(...distances)}`);
    }
});

test('lines have a contrast of three to one', () => {
  for (const [theme, background] of Object.entries(BACKGROUNDS))
    for (const colour of PALETTES[theme]) {
      const [dark, light] = [luminance(colour), luminance(background)].sort((a, b) => a - b);
      assert.ok((light + 0.05) / (dark + 0.05) >= 3, `${colour} on ${background}`);
    }
});

test('shades of a colour have a contrast of three to one and stay apart', () => {
  for (const [theme, background] of Object.entries(BACKGROUNDS))
    for (const colour of PALETTES[theme]) {
      const shades = makeShades(colour, 3, theme);
      for (const shade of shades) {
        const [dark, light] = [luminance(shade), luminance(background)].sort((a, b) => a - b);
        assert.ok((light + 0.05) / (dark + 0.05) >= 3, `${shade} of ${colour} on ${background}`);
      }
      const seen = shades.map((shade) => oklab(linear(shade)));
      assert.ok(distance(seen[0], seen[2]) > 0.1, `${theme} ${colour}: ${shades}`);
    }
});

test('runs of one group have shades of its colour and its dash', () => {
  const look = { colour: PALETTES.light[0], dash: 'dash', print: PALETTES.light[0] };
  const looks = makeShadedLooks([{ look, keys: ['a', 'b'] }], 'light');
  assert.deepEqual(
    [...looks.values()].map(({ dash }) => dash),
    ['dash', 'dash'],
  );
  assert.notEqual(looks.get('a').colour, looks.get('b').colour);
  assert.deepEqual(makeShadedLooks([{ look, keys: ['a'] }], 'light').get('a'), look);
});
