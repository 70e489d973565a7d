/** The cursor in all panels: one line at the same x, and the value of the hovered line. */
import { effect } from '../dom.js';
import { formatValue } from '../lib/text/format.js';
import { findLastAtOrBelow } from '../lib/reading.js';
import { cursor, pin, point } from './cursor.js';
import { listDrawnPanels } from './mounted.js';
import { findNearestPoint, placeLabel } from './nearest.js';
import { paint, selectPainted, makeScales } from './paint.js';
import { unscaleX } from './parts.js';

/** @typedef {import('./mounted.js').Mounted} Mounted */
/** @typedef {import('./mounted.js').Drawn} Drawn */

/** Distance in pixels from a drawn point in which a click selects the point instead of the position. */
const PIN_RADIUS_PX = 10;

/** Creates the elements that a panel needs for its marks. */
export function markElements() {
  const line = Object.assign(document.createElement('div'), { className: 'crosshair', hidden: true });
  line.append(
    Object.assign(document.createElement('i'), { className: 'crosshair-dot' }),
    document.createElement('span'),
  );
  return {
    line,
    shade: Object.assign(document.createElement('div'), { className: 'healthy-band', hidden: true }),
    curves: Object.assign(document.createElement('canvas'), { className: 'painted-curves' }),
    lit: Object.assign(document.createElement('canvas'), { className: 'painted-curves is-lit-curve', hidden: true }),
    label: Object.assign(document.createElement('div'), { className: 'point-label', hidden: true }),
  };
}

/**
 * Milliseconds that a pointer must rest until its line is highlighted. A pointer that crosses many lines would
 * otherwise repaint all panels for each.
 */
const LIT_AFTER_MS = 80;

let frame = 0;
let lightTimer = 0;
effect(() => {
  const position = cursor.value;
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    for (const panel of listDrawnPanels()) placeCursor(panel);
  });
  clearTimeout(lightTimer);
  lightTimer = setTimeout(() => lightAll(position?.key ?? null), position ? LIT_AFTER_MS : 0);
});

/**
 * Returns the x under the pointer in the units of the axis, or null outside of the plot. Steps are integers.
 * @param {Drawn} panel @param {MouseEvent} event @returns {number | null}
 */
function placeUnder({ element, figure }, event) {
  const { xaxis } = element._fullLayout;
  const offsetX = event.clientX - element.getBoundingClientRect().left - xaxis._offset;
  if (offsetX < 0 || offsetX > xaxis._length) return null;
  const x = xaxis.p2d(offsetX) * figure.unit.size;
  return figure.unit.unit === 'step' ? Math.round(x) : x;
}

/** Returns the recorded x of a point. @param {Plot.Point} point @param {import('./mounted.js').Figure} figure */
const findRecordedX = ({ x, data }, { unit }) => unscaleX(data.x, Number(x), unit);

/** Roles of traces whose label contains more than the table of values. */
const NOTES = ['onset', 'mark', 'non-finite'];

/** Reads all panels at the hovered point, or else at the pointer's position. */
export function follow(/** @type {Mounted} */ panel, /** @type {MouseEvent} */ event) {
  if (!panel.isDrawn || !panel.figure) return;
  const { metric, figure } = panel;
  if (panel.isPainted) {
    panel.hovered = findNearestPoint(/** @type {Drawn} */ (panel), event);
    placeLabel(/** @type {Drawn} */ (panel));
  }
  const { hovered } = panel;
  panel.element.classList.toggle('is-on-note', NOTES.includes(hovered?.data.meta.role ?? ''));
  if (hovered) {
    point({ x: findRecordedX(hovered, figure), metric, key: hovered.data.meta.key });
    return;
  }
  const x = placeUnder(/** @type {Drawn} */ (panel), event);
  point(x === null ? null : { x, metric, key: null });
}

/** Pins the cursor at the pointer's position. @param {Drawn} panel @param {MouseEvent} event */
export function pinUnder(panel, event) {
  const { hovered, metric, figure } = panel;
  const x = hovered ? findRecordedX(hovered, figure) : placeUnder(panel, event);
  if (x !== null) pin(x, metric);
}

/** Returns whether a click selects the point with the label. @param {Drawn} panel @param {MouseEvent} event */
export function isOnPoint({ element, hovered }, event) {
  if (!hovered || event.shiftKey) return false;
  const { left, top } = element.getBoundingClientRect();
  const { xaxis, yaxis } = element._fullLayout;
  const scales = makeScales(element, hovered.data);
  const offset = [
    scales.x(hovered.x) + xaxis._offset - (event.clientX - left),
    scales.y(hovered.y) + yaxis._offset - (event.clientY - top),
  ];
  return Math.hypot(...offset) <= PIN_RADIUS_PX;
}

/**
 * Moves the pinned cursor to the next point of its panel or, if that has no lines, of the first panel with lines.
 * @param {1 | -1} direction
 */
export function moveCursor(direction) {
  const position = cursor.peek();
  if (!position) return;
  const isOwn = (/** @type {Drawn} */ { metric }) => Number(metric === position.metric);
  const candidates = listDrawnPanels().sort((a, b) => isOwn(b) - isOwn(a));
  const next = candidates.map((panel) => findNextPoint(panel, position.x, direction)).find((x) => x !== null);
  if (next !== undefined && next !== null) pin(next, position.metric);
}

/**
 * Returns the next recorded x of a panel before or after `x`.
 * @param {Drawn} panel @param {number} x @param {1 | -1} direction
 */
function findNextPoint({ figure }, x, direction) {
  const { unit } = figure;
  const scaledX = x / unit.size;
  const xs = figure.data
    .filter(({ meta }) => meta.role === 'main')
    .flatMap(({ x: all }) => {
      const next = direction > 0 ? findLastAtOrBelow(all, scaledX) + 1 : findLastAtOrBelow(all, justBelow(scaledX));
      return all[next] === undefined ? [] : [unscaleX(all, all[next], unit)];
    });
  if (!xs.length) return null;
  return direction > 0 ? Math.min(...xs) : Math.max(...xs);
}

/** Returns a number just below x, so that the point at x is excluded. @param {number} x */
const justBelow = (x) => x - Math.max(Math.abs(x), 1) * 1e-9;

/** Shows the cursor in one panel, e.g. after it was redrawn. @param {Drawn} panel */
export function placeCursor(panel) {
  const position = cursor.peek();
  if (!position) {
    panel.line.hidden = true;
    return;
  }
  const { xaxis, yaxis } = panel.element._fullLayout;
  const x = position.x / panel.figure.unit.size;
  const lineX = xaxis.d2p(x);
  const { line } = panel;
  line.hidden = !(lineX >= 0 && lineX <= xaxis._length);
  if (line.hidden) return;
  line.classList.toggle('is-pinned', position.isPinned);
  line.style.transform = `translateX(${Math.round(xaxis._offset + lineX)}px)`;
  line.style.top = `${yaxis._offset}px`;
  line.style.height = `${yaxis._length}px`;
  placeDot(panel, position.key, x, position.metric === panel.metric, lineX > xaxis._length * 0.7);
}

/**
 * Shows the value of the hovered line in the panels that the pointer is not on.
 * @param {Drawn} panel @param {string | null} key @param {number} x @param {boolean} isSource @param {boolean} isLeft
 */
function placeDot({ element, figure, line }, key, x, isSource, isLeft) {
  const [dot, label] = /** @type {HTMLCollectionOf<HTMLElement>} */ (line.children);
  const trace = key === null || isSource ? undefined : figure.data.find(isMainOf(key));
  const index = trace ? findLastAtOrBelow(trace.x, x) : -1;
  dot.hidden = label.hidden = index < 0;
  if (!trace || index < 0) return;
  const { xaxis, yaxis } = element._fullLayout;
  const y = trace.y[index] ?? findFewerValue(figure.data, key, index);
  const top = y === null ? NaN : yaxis.d2p(y);
  dot.hidden = !(top >= 0 && top <= yaxis._length);
  if (!dot.hidden)
    Object.assign(dot.style, { top: `${top}px`, marginLeft: `${xaxis.d2p(trace.x[index]) - xaxis.d2p(x)}px` });
  label.textContent = y === null ? 'not finite' : formatValue(y);
  label.className = isLeft ? 'is-left' : '';
}

const isMainOf =
  (/** @type {string | null} */ key) =>
  (/** @type {Plot.Trace} */ { meta }) =>
    meta.key === key && meta.role === 'main';

/**
 * Returns the value of a mean at a point with fewer runs, which belongs to a separate line.
 * @param {Plot.Trace[]} data @param {string | null} key @param {number} index @returns {number | null}
 */
const findFewerValue = (data, key, index) =>
  data.find(({ meta }) => meta.key === key && meta.role === 'fewer')?.y[index] ?? null;

/** @type {string | null} */
let lit = null;

/** Dims all lines except those of one key. @param {string | null} key */
function lightAll(key) {
  if (key === lit) return;
  lit = key;
  for (const panel of listDrawnPanels()) light(panel, key);
}

function light(/** @type {Drawn} */ { element, figure, isPainted, lit: canvas }, /** @type {string | null} */ key) {
  const hasCurve = key !== null && figure.data.some(isMainOf(key));
  element.classList.toggle('is-lit', hasCurve);
  canvas.hidden = !hasCurve || !isPainted;
  if (!hasCurve) return;
  if (isPainted)
    return paint(
      canvas,
      element,
      selectPainted(figure.data).filter(({ meta }) => meta.key === key),
    );
  for (const trace of element.querySelectorAll('.scatterlayer .trace')) {
    const { __data__: points } = /** @type {Element & {__data__?: {trace?: Plot.Trace}[]}} D3's */ (trace);
    trace.classList.toggle('is-key', points?.[0]?.trace?.meta?.key === key);
  }
}

/** Paints the curves that Plotly does not draw in a panel, e.g. after its axes have changed. */
export function paintCurves(/** @type {Drawn} */ panel) {
  const { element, figure, curves, isPainted } = panel;
  curves.hidden = !isPainted;
  if (isPainted) paint(curves, element, selectPainted(figure.data));
  if (isPainted || !panel.lit.hidden) light(panel, lit);
}

/**
 * Highlights the lines of a run in all panels like a hover. `null` removes the highlight.
 * @param {string | null} key
 */
export const highlight = (key) => lightAll(key);

/**
 * Places the healthy band under the curves. Unlike a shape of Plotly's, it does not stretch the axis.
 * @param {Drawn} panel
 */
export function placeShade({ element, shade, figure: { healthy } }) {
  shade.hidden = !healthy;
  if (!healthy) return;
  const { xaxis, yaxis } = element._fullLayout;
  const pixel = (/** @type {number | null} */ value, /** @type {number} */ open) =>
    typeof value === 'number' ? Math.min(yaxis._length, Math.max(0, yaxis.d2p(value))) : open;
  const [bottom, top] = [pixel(healthy[0], yaxis._length), pixel(healthy[1], 0)];
  Object.assign(shade.style, {
    left: `${xaxis._offset}px`,
    width: `${xaxis._length}px`,
    top: `${yaxis._offset + top}px`,
    height: `${Math.max(0, bottom - top)}px`,
  });
}
