/** Arranges figures of panels on one page, and converts the page to SVG, PNG and PDF. */
import { parseXml } from '../lib/trusted.js';
import { lookup } from '../lib/lookup.js';
import { makeVisible } from '../lib/text/visible.js';
import { renderPicture } from './draw.js';
import {
  FAMILIES,
  PER_INCH,
  POINTS_PER_INCH,
  fitsOnAxis,
  fontInPixels,
  toPdfText,
  isInPdfFonts,
  placeLegend,
  makePaperFigure,
  widthInPixels,
} from './paper.js';

/**
 * @typedef {import('./paper.js').Paper} Paper
 * @typedef {{figure: import('./mounted.js').Figure, yRange: [number, number] | null, unit: string}} Drawing
 * @typedef {{name: string, look: import('../lib/colours.js').Look}} Entry of the legend
 */

const SVG = 'http://www.w3.org/2000/svg';
const MAX_NAME = 60;
/** Dots per inch of a PNG, as required by journals. */
const DPI = 300;
/** Resolution, relative to the screen, of the image of a text that PDF's built-in fonts cannot show. */
const PIXEL_SCALE = 6;
const DASHES = { solid: '', dash: '6 3', dot: '2 2', dashdot: '6 2 2 2' };

/** @param {string} name @param {Record<string, unknown>} attributes */
function makeElement(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  return node;
}

/**
 * Returns a page with all drawings in columns and one legend below them.
 * @param {Drawing[]} drawings @param {Entry[]} entries @param {Paper} paper @returns {Promise<SVGSVGElement>}
 */
export async function drawPage(drawings, entries, paper) {
  const width = widthInPixels(paper);
  const columns = Math.min(paper.columns, drawings.length);
  const columnWidth = width / columns;
  const page = /** @type {SVGSVGElement} */ (makeElement('svg', { xmlns: SVG }));
  let height = 0;
  const isNamedOnAxis = drawings.every(({ figure }) => fitsOnAxis(figure, paper, columnWidth));
  for (const [index, { figure, yRange, unit }] of drawings.entries()) {
    const sizedFigure = makePaperFigure(figure, paper, columnWidth, { yRange, unit, isNamedOnAxis });
    const panel = await drawPanel(sizedFigure);
    const top = Math.floor(index / columns) * sizedFigure.layout.height;
    panel.setAttribute('x', String((index % columns) * columnWidth));
    panel.setAttribute('y', String(top));
    page.append(panel);
    height = top + sizedFigure.layout.height;
  }
  if (paper.legend) height += addLegend(page, entries, paper, { width, top: height });
  for (const [name, value] of Object.entries({
    width: `${paper.width}${paper.unit}`,
    height: `${(paper.width * height) / width}${paper.unit}`,
    viewBox: `0 0 ${width} ${height}`,
  }))
    page.setAttribute(name, value);
  if (paper.ground === 'white') page.prepend(makeElement('rect', { width, height, fill: '#ffffff' }));
  return page;
}

/** @param {{data: Plot.Trace[], layout: Plot.Layout}} figure */
async function drawPanel(figure) {
  const panel = /** @type {any} */ (document.importNode(parseXml(await renderPicture(figure)).documentElement, true));
  panel.removeAttribute('style'); // a ground of its own
  for (const drag of panel.querySelectorAll('.drag, .nsewdrag, .hoverlayer, .zoomlayer')) drag.remove();
  return panel;
}

/**
 * @param {SVGElement} page @param {Entry[]} entries @param {Paper} paper @param {{width: number, top: number}} place
 * @returns {number} its height
 */
function addLegend(page, entries, paper, { width, top }) {
  const size = fontInPixels(paper);
  const markWidth = size * 2.2;
  const maxWidth = width - 2 * size;
  const context = /** @type {CanvasRenderingContext2D} */ (document.createElement('canvas').getContext('2d'));
  context.font = `${size}px ${lookup(FAMILIES, paper.family)}`;
  const names = entries.map(({ name }) => fitName(makeVisible(name), maxWidth - markWidth - size, context));
  const widths = names.map((name) => markWidth + context.measureText(name).width + size * 1.6);
  const positions = placeLegend(widths, maxWidth);
  positions.forEach(({ x, row }, i) => {
    const [leftX, middle] = [size + x, top + size * (1 + 1.5 * row)];
    const { look } = entries[i];
    const line = { x1: leftX, x2: leftX + size * 1.8, y1: middle, y2: middle };
    const style = { stroke: look.print, 'stroke-width': 1.3, 'stroke-dasharray': DASHES[look.dash] || 'none' };
    page.append(makeElement('line', { ...line, ...style }));
    const label = makeElement('text', {
      x: leftX + markWidth,
      y: middle + size * 0.35,
      'font-family': lookup(FAMILIES, paper.family),
      'font-size': `${size}px`,
      fill: '#202020',
    });
    label.textContent = names[i];
    page.append(label);
  });
  return positions.length ? size * (1.5 * ((positions.at(-1)?.row ?? 0) + 1) + 1) : 0;
}

/**
 * Returns a name shortened to a width.
 * @param {string} name @param {number} maxWidth @param {CanvasRenderingContext2D} context
 */
function fitName(name, maxWidth, context) {
  const characters = [...name];
  let count = Math.min(MAX_NAME, characters.length);
  const text = () => (count < characters.length ? `${characters.slice(0, count).join('')}…` : name);
  while (count > 1 && context.measureText(text()).width > maxWidth) count -= 1;
  return text();
}

/** @param {Element} page */
const serializePage = (page) => new XMLSerializer().serializeToString(page);

/** Returns a page as an SVG image, which cannot run scripts. @param {Element} page */
export const makeSvgBlob = (page) => new Blob([serializePage(page)], { type: 'image/svg+xml' });

/** @param {SVGSVGElement} page @returns {{width: number, height: number}} in pixels of the screen */
function readSize(page) {
  const [, , width, height] = String(page.getAttribute('viewBox')).split(' ').map(Number);
  return { width, height };
}

/**
 * Renders a page to a canvas.
 * @param {SVGSVGElement} page @param {number} [scale] @returns {Promise<HTMLCanvasElement>}
 */
async function drawCanvas(page, scale = DPI / PER_INCH) {
  const { width, height } = readSize(page);
  const address = URL.createObjectURL(makeSvgBlob(page));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** @param {SVGSVGElement} page @returns {Promise<Blob>} */
async function makePngBlob(page) {
  const canvas = await drawCanvas(page);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The picture is too large for this browser')))),
  );
}

/** @param {SVGSVGElement} page @returns {Promise<Blob>} */
async function makePdfBlob(page) {
  await import('../../vendor/jspdf.min.js');
  await import('../../vendor/svg2pdf.min.js'); // adds itself to the former
  const { width, height } = readSize(page);
  const [wide, high] = [width, height].map((pixels) => (pixels / PER_INCH) * POINTS_PER_INCH);
  const file = new window.jspdf.jsPDF({
    unit: 'pt',
    format: [wide, high],
    orientation: wide > high ? 'landscape' : 'portrait',
    compress: true,
  });
  const stage = Object.assign(document.createElement('div'), { className: 'picture-stage' });
  const copy = /** @type {SVGSVGElement} */ (page.cloneNode(true));
  stage.append(copy);
  document.body.append(stage); // texts are measured on the page
  try {
    await paintForeignTexts(copy);
    await window.svg2pdf.svg2pdf(copy, file, { x: 0, y: 0, width: wide, height: high });
  } finally {
    stage.remove();
  }
  return file.output('blob');
}

/**
 * Replaces each text that PDF's built-in fonts cannot show, such as Arabic, by an image rendered in the browser.
 * @param {SVGSVGElement} page
 */
async function paintForeignTexts(page) {
  for (const text of page.querySelectorAll('text')) {
    for (const node of [...text.childNodes, ...[...text.children].flatMap((child) => [...child.childNodes])])
      if (node.nodeType === Node.TEXT_NODE) node.nodeValue = toPdfText(node.nodeValue ?? '');
    if (isInPdfFonts(text.textContent ?? '')) continue;
    const { x, y, width, height } = text.getBBox();
    const clone = /** @type {Element} */ (text.cloneNode(true));
    clone.removeAttribute('transform');
    const alone = /** @type {SVGSVGElement} */ (
      makeElement('svg', { xmlns: SVG, width, height, viewBox: `${x} ${y} ${width} ${height}` })
    );
    alone.append(clone);
    const canvas = await drawCanvas(alone, PIXEL_SCALE);
    const picture = makeElement('image', { x, y, width, height, href: canvas.toDataURL('image/png') });
    const transform = text.getAttribute('transform');
    if (transform) picture.setAttribute('transform', transform);
    text.replaceWith(picture);
  }
}

/** Converts a page to a file. @param {SVGSVGElement} page @param {Paper['format']} format @returns {Promise<Blob>} */
export async function makeFile(page, format) {
  if (format === 'pdf') return makePdfBlob(page);
  return format === 'png' ? makePngBlob(page) : makeSvgBlob(page);
}
