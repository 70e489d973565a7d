/**
 * The only file that touches Plotly. It keeps many panels cheap: a panel is drawn when it comes near the screen and
 * purged when it is far, one panel per animation frame; hover is shown in all of them.
 */
import { plotlyAddress } from '../lib/trusted.js';
import { formatValue } from '../lib/text/format.js';

/**
 * @typedef {ReturnType<typeof import('./figure.js').figureOf>} Figure
 * @typedef {{onPoint?: (run: string | null, step: number, key: string) => void, onZoom?: (range: [number,
 *   number] | null) => void,
 *   onNear?: (near: boolean) => void}} Handlers
 * @typedef {{element: Plot.Graph, line: HTMLElement, shade: HTMLElement, handlers: Handlers, figure: Figure | null,
 *   near: boolean, drawn: boolean}} Mounted `element` is a graph of Plotly's once `drawn`
 * @typedef {Mounted & {figure: Figure}} Drawn
 */

const CONFIG = {
  displayModeBar: false,
  displaylogo: false,
  showSendToCloud: false,
  showEditInChartStudio: false,
  plotlyServerURL: '',
  responsive: false,
  scrollZoom: false,
  doubleClick: false,
  doubleClickDelay: 250,
  showTips: false,
};
const NEAR = '600px';

/** @type {Map<Element, Mounted>} */
const panels = new Map();
/** @type {Set<Mounted>} */
const waiting = new Set();
let frame = 0;
/** @type {Promise<Plot.Library> | null} */
let loading = null;

/** Loads the library once; panels wait for it. @returns {Promise<Plot.Library>} */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = plotlyAddress();
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error('The chart library could not be loaded'));
    document.head.append(script);
  });
  return loading;
}

const nearness = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const panel = panels.get(target);
      if (!panel || panel.near === isIntersecting) continue;
      panel.near = isIntersecting;
      panel.handlers.onNear?.(isIntersecting);
      if (isIntersecting) ask(panel);
      else purge(panel);
    }
  },
  { rootMargin: NEAR, scrollMargin: NEAR },
);

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const panel = panels.get(target);
    if (panel?.drawn && panel.element.offsetParent !== null) ask(panel);
  }
});

/**
 * Makes an element a panel.
 * @param {HTMLElement} element @param {Handlers} handlers
 * @returns {{draw: (figure: Figure) => void, dispose: () => void}}
 */
export function mountPanel(element, handlers) {
  const line = Object.assign(document.createElement('div'), { className: 'crosshair', hidden: true });
  line.append(
    Object.assign(document.createElement('i'), { className: 'crosshair-dot' }),
    document.createElement('span'),
  );
  const shade = Object.assign(document.createElement('div'), { className: 'healthy-band', hidden: true });
  const graph = /** @type {Plot.Graph} */ (element);
  /** @type {Mounted} */
  const panel = { element: graph, line, shade, handlers, figure: null, near: false, drawn: false };
  panels.set(element, panel);
  nearness.observe(element);
  sizes.observe(element);
  element.addEventListener('mouseleave', leave);
  return {
    draw(figure) {
      panel.figure = figure;
      ask(panel);
    },
    dispose() {
      nearness.unobserve(element);
      sizes.unobserve(element);
      purge(panel);
      waiting.delete(panel);
      panels.delete(element);
    },
  };
}

function ask(/** @type {Mounted} */ panel) {
  if (!panel.near || !panel.figure) return;
  waiting.add(panel);
  if (!frame) frame = requestAnimationFrame(drawNext);
}

async function drawNext() {
  const Plotly = await loadPlotly();
  frame = 0;
  const panel = nearest(waiting);
  if (!panel) return;
  waiting.delete(panel);
  if (panel.near && panel.figure && panels.has(panel.element)) await drawNow(Plotly, /** @type {Drawn} */ (panel));
  if (waiting.size && !frame) frame = requestAnimationFrame(drawNext);
}

/** The waiting panel closest to the middle of the screen. @param {Set<Mounted>} candidates */
function nearest(candidates) {
  const distance = (/** @type {Mounted} */ { element }) => {
    const { top, height } = element.getBoundingClientRect();
    return Math.abs(top + height / 2 - innerHeight / 2);
  };
  return [...candidates].sort((a, b) => distance(a) - distance(b))[0];
}

/** @param {Plot.Library} Plotly @param {Drawn} panel */
async function drawNow(Plotly, panel) {
  const { element, figure } = panel;
  await Plotly.react(
    element,
    figure.data,
    { ...figure.layout, width: element.clientWidth, height: element.clientHeight },
    CONFIG,
  );
  placeShade(panel);
  if (panel.drawn) return;
  panel.drawn = true;
  element.prepend(panel.shade);
  element.append(panel.line);
  element.on('plotly_afterplot', () => placeShade(panel));
  element.on('plotly_hover', ({ points }) => points?.length && hovered(panel, points[0]));
  element.on('plotly_unhover', leave);
  element.on('plotly_click', ({ points }) => points?.length && clicked(panel, points[0]));
  element.on('plotly_relayout', (change) => relaid(panel, change));
  element.on('plotly_doubleclick', () => reset(Plotly, panel));
}

function purge(/** @type {Mounted} */ panel) {
  if (!panel.drawn) return;
  panel.drawn = false;
  window.Plotly.purge(panel.element);
  panel.element.replaceChildren();
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let clickTimer;
let resetAt = -Infinity;

/**
 * In a zoomed panel a click waits a moment: it may be the first half of the double click that resets.
 * @param {Drawn} panel @param {Plot.Point} point
 */
function clicked(panel, point) {
  if (performance.now() - resetAt < CONFIG.doubleClickDelay) return;
  const { run, key } = point.data.meta;
  const isZoomed = panel.figure.isZoomed || !panel.element._fullLayout.yaxis.autorange;
  clearTimeout(clickTimer);
  clickTimer = setTimeout(
    () => panel.handlers.onPoint?.(run, point.customdata, key),
    isZoomed ? CONFIG.doubleClickDelay + 30 : 0,
  );
}

/** @param {Drawn} panel @param {Record<string, any>} change */
function relaid(panel, change) {
  const range =
    change['xaxis.range'] ??
    (change['xaxis.range[0]'] === undefined ? null : [change['xaxis.range[0]'], change['xaxis.range[1]']]);
  if (!range) return;
  const isLog = panel.element.layout.xaxis.type === 'log';
  const edges = range.map((/** @type {number} */ edge) => (isLog ? 10 ** edge : edge) * panel.figure.unit.size);
  panel.handlers.onZoom?.(/** @type {[number, number]} */ (edges));
}

/** @param {Plot.Library} Plotly @param {Drawn} panel */
function reset(Plotly, panel) {
  clearTimeout(clickTimer);
  resetAt = performance.now();
  Plotly.relayout(panel.element, { 'yaxis.autorange': true });
  panel.handlers.onZoom?.(null);
}

let hoverFrame = 0;
let isLit = false;

/** @param {Drawn} source @param {Plot.Point} point */
function hovered(source, point) {
  const { key } = point.data.meta;
  const step = point.customdata;
  cancelAnimationFrame(hoverFrame);
  hoverFrame = requestAnimationFrame(() => {
    isLit = true;
    for (const panel of panels.values()) if (panel.drawn) follow(panel, source, key, step);
  });
}

/**
 * Shows in one panel what is hovered in another: the same run at the same step.
 * @param {Mounted} panel @param {Mounted} source @param {string} key @param {number} step
 */
function follow(panel, source, key, step) {
  const curve = panel.element.data.findIndex(({ meta }) => meta.key === key && meta.role === 'main');
  light(panel, key, curve >= 0);
  const trace = panel.element.data[curve];
  const at = trace ? indexAtStep(trace.customdata, step) : -1;
  if (at < 0) panel.line.hidden = true;
  else placeLine(panel, trace.x[at], trace.y[at] ?? fewerAt(panel, key, at), panel === source);
}

/**
 * The value of a mean where it has fewer runs, which is a line of its own.
 * @param {Mounted} panel @param {string} key @param {number} at @returns {number | null}
 */
const fewerAt = ({ element }, key, at) =>
  element.data.find(({ meta }) => meta.key === key && meta.role === 'fewer')?.y[at] ?? null;

/** Index of the step nearest to the wanted one. @param {number[]} steps ascending @param {number} step */
export function indexAtStep(steps, step) {
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1;
    else high = middle;
  }
  return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low < steps.length ? low : -1;
}

/**
 * The line through the hovered step and, in the other panels, the value there.
 * @param {Mounted} panel @param {number} x @param {number | null} y @param {boolean} isSource
 */
function placeLine({ element, line }, x, y, isSource) {
  const { xaxis, yaxis } = element._fullLayout;
  const left = xaxis.d2p(x);
  line.hidden = !(left >= 0 && left <= xaxis._length);
  line.style.transform = `translateX(${Math.round(xaxis._offset + left)}px)`;
  line.style.top = `${yaxis._offset}px`;
  line.style.height = `${yaxis._length}px`;
  const [dot, label] = /** @type {HTMLCollectionOf<HTMLElement>} */ (line.children);
  const top = y === null ? NaN : yaxis.d2p(y);
  dot.hidden = isSource || !(top >= 0 && top <= yaxis._length);
  if (!dot.hidden) dot.style.top = `${top}px`;
  label.hidden = isSource;
  label.textContent = y === null ? 'not finite' : formatValue(y);
  label.className = left > xaxis._length * 0.7 ? 'is-left' : '';
}

/**
 * The healthy band lies under the curves and never stretches the axis, as a shape of Plotly's would.
 * @param {Drawn} panel
 */
function placeShade({ element, shade, figure: { healthy } }) {
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

/** Dims all lines but those of one key. @param {Mounted} panel @param {string} key @param {boolean} found */
function light({ element }, key, found) {
  element.classList.toggle('is-lit', found);
  for (const trace of element.querySelectorAll('.scatterlayer .trace')) {
    const { __data__: held } = /** @type {Element & {__data__?: {trace?: Plot.Trace}[]}} D3's */ (trace);
    trace.classList.toggle('is-key', held?.[0]?.trace?.meta?.key === key);
  }
}

/** Lights the lines of a run in all panels, as a hover does; `null` ends it. @param {string | null} key */
export function highlight(key) {
  if (key === null) return leave();
  isLit = true;
  for (const panel of panels.values()) if (panel.drawn) light(panel, key, true);
}

function leave() {
  cancelAnimationFrame(hoverFrame);
  if (!isLit) return;
  isLit = false;
  for (const panel of panels.values()) {
    if (!panel.drawn) continue;
    panel.element.classList.remove('is-lit');
    panel.line.hidden = true;
    window.Plotly.Fx.unhover(panel.element);
  }
}

/** Saves a panel as a picture. @param {HTMLElement} element @param {string} filename */
export async function savePicture(element, filename) {
  const Plotly = await loadPlotly();
  const background = getComputedStyle(document.body).getPropertyValue('background-color');
  const { data, layout } = /** @type {Plot.Graph} */ (element);
  await Plotly.downloadImage(
    { data, layout: { ...layout, paper_bgcolor: background }, config: CONFIG },
    { format: 'png', scale: 2, width: element.clientWidth, height: element.clientHeight, filename },
  );
}
