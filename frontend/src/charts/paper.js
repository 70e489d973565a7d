/** Converts a panel to a figure for a paper: a printed size, one font, and a white or transparent background. Pure. */

import { lookup } from '../lib/lookup.js';
import { escapeMarkup, unescapeMarkup } from './parts.js';

/** @typedef {import('./mounted.js').Figure} Figure */
/**
 * @typedef {{format: 'pdf' | 'svg' | 'png', width: number, unit: 'mm' | 'in', font: number, family: string,
 *   ground: 'white' | 'transparent', columns: number, legend: boolean, onsets: boolean}} Paper `width`: of the complete
 *   figure; `font`: in points
 * @typedef {{yRange: [number, number] | null, unit: string, isNamedOnAxis: boolean}} Axis `yRange`: of the visible
 *   axis, in its own units; `isNamedOnAxis`: whether the metric's name is along the y axis instead of above the panel
 */

/** Pixels per inch in SVG and CSS. Below, millimetres and points per inch. */
export const PER_INCH = 96;
const MM_PER_INCH = 25.4;
export const POINTS_PER_INCH = 72;

/** Limits of the input fields. The largest figure fits on a poster. */
export const WIDTHS = { mm: { min: 20, max: 1200 }, in: { min: 0.8, max: 48 } };
export const FONTS = { min: 4, max: 48 };

/** @type {Paper} */
export const ONE_COLUMN = {
  format: 'pdf',
  width: 84,
  unit: 'mm',
  font: 8,
  family: 'Helvetica',
  ground: 'white',
  columns: 1,
  legend: true,
  onsets: true,
};

/** Returns whether a figure of this size can be drawn. @param {Paper} paper */
export const isDrawable = ({ width, unit, font }) =>
  width >= WIDTHS[unit].min && width <= WIDTHS[unit].max && font >= FONTS.min && font <= FONTS.max;

/** @param {Paper} paper */
export const widthInPixels = ({ width, unit }) => (unit === 'mm' ? width / MM_PER_INCH : width) * PER_INCH;

/** @param {Paper} paper */
export const fontInPixels = ({ font }) => (font / POINTS_PER_INCH) * PER_INCH;

/** Fonts that every PDF reader has, with their substitutes in a browser. @type {Record<string, string>} */
export const FAMILIES = {
  Helvetica: 'Helvetica, Arial, "Liberation Sans", sans-serif',
  Times: 'Times, "Times New Roman", "Liberation Serif", serif',
};

/** Colours on paper, by the names in charts/theme.js. */
export const PAPER_THEME = {
  grid: '#e4e4e4',
  axis: '#404040',
  label: '#202020',
  ink: '#000000',
  raised: '#ffffff',
  bad: '#b3261e',
  good: '#1c7443',
  background: '#ffffff',
};

const HEIGHT_OF_WIDTH = 0.68;
const PAPER_LINE_SCALE = 0.7;
/** Average width of a letter, as a fraction of the font size. */
const GLYPH_WIDTH = 0.54;

/** @param {string} text @param {number} maxLength characters */
export const shortenLabel = (text, maxLength) => {
  const characters = [...text];
  return characters.length > maxLength ? `${characters.slice(0, Math.max(1, maxLength - 1)).join('')}…` : text;
};

/** Returns the metric of a figure, with its unit. @param {Pick<Figure, 'layout'>} figure */
const readYTitle = ({ layout }) => unescapeMarkup(layout.yaxis.title?.text ?? '');

/** Height of the axes' labels, in font sizes. */
const AXES_ROOM = 4;

/**
 * Returns whether the metric's name fits along the y axis.
 * @param {Figure} figure @param {Paper} paper @param {number} width
 */
export const fitsOnAxis = (figure, paper, width) =>
  readYTitle(figure).length * GLYPH_WIDTH * fontInPixels(paper) <
  width * HEIGHT_OF_WIDTH - AXES_ROOM * fontInPixels(paper);

/**
 * Returns the figure of one panel in its printed size, with its metric along the y axis or above it. Margins grow with
 * the labels of the ticks.
 * @param {Figure} figure @param {Paper} paper @param {number} width in pixels @param {Axis} yAxis
 * @returns {{data: Plot.Trace[], layout: Plot.Layout}}
 */
export function makePaperFigure(figure, paper, width, { yRange, unit, isNamedOnAxis }) {
  const { data, layout } = figure;
  const size = fontInPixels(paper);
  const name = readYTitle(figure);
  const above = isNamedOnAxis ? '' : name.replace(unit && ` (${unit})`, '');
  const font = { family: lookup(FAMILIES, paper.family), size, color: PAPER_THEME.label };
  const axis = (/** @type {Plot.Layout} */ axisLayout) => ({
    ...axisLayout,
    automargin: true,
    ticks: 'outside',
    ticklen: size / 3,
    tickfont: font,
    ticklabeloverflow: 'allow',
    showline: true,
    title: { ...axisLayout.title, font, standoff: size / 2 },
  });
  return {
    data: data.map(thinTrace),
    layout: {
      ...layout,
      width,
      height: Math.round(width * HEIGHT_OF_WIDTH),
      autosize: false,
      margin: { l: size * 3, r: size * 1.5, t: size * (above ? 2.4 : 1), b: size * 3, pad: 0 },
      font,
      title: {
        text: escapeMarkup(shortenLabel(above, Math.floor((width - 2 * size) / (size * GLYPH_WIDTH)))),
        font: { ...font, color: PAPER_THEME.ink },
        x: 0,
        xref: 'container',
        xanchor: 'left',
        y: 1,
        yref: 'container',
        yanchor: 'top',
        pad: { t: size / 2, l: size },
      },
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      showlegend: false,
      xaxis: axis(layout.xaxis),
      yaxis: {
        ...axis(layout.yaxis),
        title: { text: escapeMarkup(isNamedOnAxis ? name : unit), font, standoff: size / 2 },
        ...(yRange ? { range: yRange, autorange: false } : {}),
      },
    },
  };
}

/** Returns a trace with the finer lines and markers of print. @param {Plot.Trace} trace @returns {Plot.Trace} */
const thinTrace = (trace) => ({
  ...trace,
  line: { ...trace.line, width: trace.line?.width * PAPER_LINE_SCALE },
  ...(typeof trace.marker?.size === 'number'
    ? {
        marker: {
          ...trace.marker,
          size: trace.marker.size * PAPER_LINE_SCALE,
          line: { width: trace.marker.line?.width * PAPER_LINE_SCALE },
        },
      }
    : {}),
});

/**
 * Places entries of a legend in rows, each as wide as its name and mark.
 * @param {number[]} widths @param {number} maxWidth @returns {{x: number, row: number}[]}
 */
export function placeLegend(widths, maxWidth) {
  let [x, row] = [0, 0];
  return widths.map((width) => {
    if (x > 0 && x + width > maxWidth) [x, row] = [0, row + 1];
    const position = { x, row };
    x += width;
    return position;
  });
}

/** Characters of Windows code page 1252 beyond Latin-1, which the built-in fonts of PDF also have. */
const BEYOND_LATIN = '€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ';

/**
 * Replaces characters that PDF's built-in fonts lack: a minus by a dash, narrow spaces by normal ones.
 * @param {string} text
 */
export const toPdfText = (text) => text.replaceAll('\u2212', '\u2013').replace(/[\u2009\u202f]/g, ' ');

/** Returns whether the built-in fonts of PDF have all characters of a text. @param {string} text */
export const isInPdfFonts = (text) =>
  [...text].every((character) => /[\x20-\x7e\xa0-\xff]/.test(character) || BEYOND_LATIN.includes(character));
