/**
 * Colours of runs and variants. Ten colours, chosen so that any two stay apart for normal, deutan and protan eyes
 * (a test measures it) with at least 3:1 against their background. Where more than ten are drawn together, the
 * dash tells those of one colour apart.
 */

/** @typedef {'solid'|'dash'|'dot'|'dashdot'} Dash */
/** @typedef {{colour: string, dash: Dash}} Look */

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
 * Looks of things drawn together; the second one of a colour is dashed, the third dotted, ...
 * @param {{key: string, slot: number}[]} items @param {'light'|'dark'} theme @returns {Map<string, Look>}
 */
export function looksTogether(items, theme) {
  const seen = new Map();
  return new Map(
    items.map(({ key, slot }) => {
      const paletteIndex = slot % LIGHT.length;
      const turn = seen.get(paletteIndex) ?? 0;
      seen.set(paletteIndex, turn + 1);
      return [key, { colour: PALETTES[theme][paletteIndex], dash: DASHES[turn % DASHES.length] }];
    }),
  );
}

/**
 * A slot of the palette for each group: that of its first run unless a group before it has that one, else a free one.
 * No colour is free from the eleventh group on, so each further group uses the colour of its run.
 * @param {number[]} slots those of their first runs @returns {number[]}
 */
export function slotsOfGroups(slots) {
  const indexes = slots.map((slot) => slot % LIGHT.length);
  const taken = new Set(indexes);
  return indexes.map((paletteIndex, i) => {
    if (indexes.indexOf(paletteIndex) === i) return paletteIndex;
    let free = paletteIndex;
    for (let tried = 0; taken.has(free) && tried < LIGHT.length; tried += 1) free = (free + 1) % LIGHT.length;
    taken.add(free);
    return free;
  });
}

/** `#rrggbb` or `rgb(r, g, b)` with an opacity, for bands. @param {string} colour @param {number} opacity 0-1 */
export function withOpacity(colour, opacity) {
  const [red, green, blue] = colour.startsWith('#')
    ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
    : (colour.match(/\d+/g) ?? []).map(Number);
  return `rgba(${red},${green},${blue},${opacity})`;
}
