/**
 * Colours of runs and variants. The ten colours can be distinguished with normal, deutan and protan vision (as measured
 * in a test), with a contrast of at least 3:1. With more than ten items, dashes distinguish equal colours. Single runs
 * of a group have shades of the group's colour.
 */

/** @typedef {'solid'|'dash'|'dot'|'dashdot'} Dash */
/** @typedef {{colour: string, dash: Dash, print: string}} Look `print`: the colour on white paper */

const LIGHT = [
  '#397ffc',
  '#e26b16',
  '#18726c',
  '#b84a9b',
  '#533f00',
  '#7939c0',
  '#bd3936',
  '#70a076',
  '#3c9ec9',
  '#690c76',
];
const DARK = [
  '#7eb5f5',
  '#d9925d',
  '#60d5c2',
  '#c77caa',
  '#cfc200',
  '#af73fe',
  '#c65a52',
  '#68fa88',
  '#99e6f9',
  '#a262b6',
];
/** @type {Dash[]} */
const DASHES = ['solid', 'dash', 'dot', 'dashdot'];

export const PALETTES = { light: LIGHT, dark: DARK };

/**
 * Returns the looks of items in one chart. The second item of a colour is dashed, the third is dotted, ...
 * @param {{key: string, slot: number}[]} items @param {'light'|'dark'} theme @returns {Map<string, Look>}
 */
export function makeLooks(items, theme) {
  const turnByIndex = new Map();
  return new Map(
    items.map(({ key, slot }) => {
      const paletteIndex = slot % LIGHT.length;
      const turn = turnByIndex.get(paletteIndex) ?? 0;
      turnByIndex.set(paletteIndex, turn + 1);
      const dash = DASHES[turn % DASHES.length];
      return [key, { colour: PALETTES[theme][paletteIndex], dash, print: LIGHT[paletteIndex] }];
    }),
  );
}

/** Backgrounds of lines: `--surface` in styles/base.css. */
const BACKGROUNDS = { light: '#ffffff', dark: '#14181e' };
const LEAST_CONTRAST = 3;
/** Distance of the outermost shades from their colour, as a share of the distance to black and to white. */
const SHADE_SHARES = { black: 0.38, white: 0.3 };

const parseChannels = (/** @type {string} */ colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** @param {string} colour @param {number} target a channel: 0 is black, 255 white @param {number} share 0-1 */
const mixColours = (colour, target, share) =>
  `#${parseChannels(colour)
    .map((channel) =>
      Math.round(channel + (target - channel) * share)
        .toString(16)
        .padStart(2, '0'),
    )
    .join('')}`;

/** Returns the relative luminance as defined by WCAG. @param {string} colour */
function computeLuminance(colour) {
  const [red, green, blue] = parseChannels(colour)
    .map((channel) => channel / 255)
    .map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Returns the contrast of two colours as defined by WCAG. @param {string} a @param {string} b */
export function computeContrast(a, b) {
  const [dark, light] = [computeLuminance(a), computeLuminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

/**
 * Returns shades of a colour, from dark to light, all with a contrast of 3:1 to the theme's background.
 * @param {string} colour @param {number} count @param {'light'|'dark'} theme @returns {string[]}
 */
export function makeShades(colour, count, theme) {
  if (count === 1) return [colour];
  const end = (/** @type {number} */ target, /** @type {number} */ reach) => {
    let share = reach;
    while (share > 0 && computeContrast(mixColours(colour, target, share), BACKGROUNDS[theme]) < LEAST_CONTRAST)
      share = Math.max(0, share - 0.01);
    return share;
  };
  const [darkest, lightest] = [-end(0, SHADE_SHARES.black), end(255, SHADE_SHARES.white)];
  return Array.from({ length: count }, (_, i) => {
    const shade = darkest + ((lightest - darkest) * i) / (count - 1);
    return mixColours(colour, shade < 0 ? 0 : 255, Math.abs(shade));
  });
}

/**
 * Returns the looks of single runs, which have shades of their group's colour, and its dash.
 * @param {{look: Look, keys: string[]}[]} groups @param {'light'|'dark'} theme @returns {Map<string, Look>}
 */
export const makeShadedLooks = (groups, theme) =>
  new Map(
    groups.flatMap(({ look, keys }) => {
      const shades = makeShades(look.colour, keys.length, theme);
      const prints = makeShades(look.print, keys.length, 'light');
      return keys.map(
        (key, i) => /** @type {[string, Look]} */ ([key, { ...look, colour: shades[i], print: prints[i] }]),
      );
    }),
  );

/**
 * Returns a slot of the palette for each group: that of its first run, or a free slot if an earlier group has that one.
 * From the eleventh group on, no slot is free, and each group uses the slot of its run.
 * @param {number[]} slots `slots`: those of their first runs @returns {number[]}
 */
export function chooseSlots(slots) {
  const indexes = slots.map((slot) => slot % LIGHT.length);
  const takenIndexes = new Set(indexes);
  return indexes.map((paletteIndex, i) => {
    if (indexes.indexOf(paletteIndex) === i) return paletteIndex;
    let freeIndex = paletteIndex;
    for (let tries = 0; takenIndexes.has(freeIndex) && tries < LIGHT.length; tries += 1)
      freeIndex = (freeIndex + 1) % LIGHT.length;
    takenIndexes.add(freeIndex);
    return freeIndex;
  });
}

/**
 * Returns a colour (`#rrggbb` or `rgb(r, g, b)`) with an opacity, for bands.
 * @param {string} colour @param {number} opacity 0-1
 */
export function withOpacity(colour, opacity) {
  const [red, green, blue] = colour.startsWith('#')
    ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
    : (colour.match(/\d+/g) ?? []).map(Number);
  return `rgba(${red},${green},${blue},${opacity})`;
}
