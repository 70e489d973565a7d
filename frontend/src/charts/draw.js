/**
 * The only file that uses Plotly. It limits the cost of many panels: a panel is drawn when it comes near the screen and
 * purged when it is far away, and the page can react between panels. A hover is shown in all of them.
 */
import { plotlyAddress } from '../lib/trusted.js';
import { follow, isOnPoint, markElements, paintCurves, pinUnder, placeCursor, placeShade } from './crosshair.js';
import { point } from './cursor.js';
import { panels } from './mounted.js';
import { placeLabel } from './nearest.js';
import { isPainted, selectPlotted } from './paint.js';

/** @typedef {import('./mounted.js').Figure} Figure */
/** @typedef {import('./mounted.js').Handlers} Handlers */
/** @typedef {import('./mounted.js').Mounted} Mounted */
/** @typedef {import('./mounted.js').Drawn} Drawn */

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
const NEAR_PX = 600;
const AT_ONCE_MS = 25;

/** @type {Set<Mounted>} */
const waitingPanels = new Set();
let isDrawing = false;
/** @type {Promise<Plot.Library> | null} */
let plotlyPromise = null;

/** Loads the library once. Panels wait for it. @returns {Promise<Plot.Library>} */
export function loadPlotly() {
  plotlyPromise ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = plotlyAddress();
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error('The chart library could not be loaded'));
    document.head.append(script);
  });
  return plotlyPromise;
}

loadPlotly().catch(() => {}); // start loading while the page requests its data; callers that await it handle a failure

const nearness = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const panel = panels.get(target);
      if (panel && panel.isNear !== isIntersecting) handleIntersection(panel, isIntersecting);
    }
  },
  { rootMargin: `${NEAR_PX}px`, scrollMargin: `${NEAR_PX}px` },
);

function handleIntersection(/** @type {Mounted} */ panel, /** @type {boolean} */ isNear) {
  panel.isNear = isNear;
  panel.handlers.onNear?.(isNear);
  if (isNear) requestDraw(panel);
  else purge(panel);
}

/**
 * Returns whether an element is near the screen, one frame before the observer reports it.
 * @param {HTMLElement} element
 */
function startsNear(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return top < bottom && top < innerHeight + NEAR_PX && bottom > -NEAR_PX;
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const panel = panels.get(target);
    if (panel?.isDrawn && panel.element.offsetParent !== null) requestDraw(panel);
  }
});

/**
 * Turns an element into the panel of a metric.
 * @param {HTMLElement} element @param {string} metric @param {Handlers} handlers
 * @returns {{draw: (figure: Figure) => void, dispose: () => void}}
 */
export function mountPanel(element, metric, handlers) {
  const graph = /** @type {Plot.Graph} */ (element);
  /** @type {Mounted} */
  const panel = {
    element: graph,
    metric,
    ...markElements(),
    handlers,
    figure: null,
    isNear: false,
    isDrawn: false,
    isPainted: false,
    plotContent: '',
    hovered: null,
  };
  panels.set(element, panel);
  nearness.observe(element);
  sizes.observe(element);
  if (startsNear(element)) handleIntersection(panel, true);
  element.addEventListener('mousemove', (event) => follow(panel, event));
  element.addEventListener('mouseleave', () => handleLeave(panel));
  element.addEventListener('pointerdown', (event) => handlePointerDown(panel, event), { capture: true });
  element.addEventListener('wheel', (event) => handleWheel(panel, event), { passive: false });
  return {
    draw(figure) {
      panel.figure = figure;
      requestDraw(panel);
    },
    dispose() {
      nearness.unobserve(element);
      sizes.unobserve(element);
      purge(panel);
      waitingPanels.delete(panel);
      panels.delete(element);
    },
  };
}

function requestDraw(/** @type {Mounted} */ panel) {
  if (!panel.isNear || !panel.figure) return;
  waitingPanels.add(panel);
  if (!isDrawing) requestAnimationFrame(drawWaiting);
  isDrawing = true;
}

/**
 * Draws the queued panels. The page can react every few panels, but a panel does not wait until the browser has shown
 * the previous one, because without a graphics card that takes longer than drawing it.
 */
async function drawWaiting() {
  try {
    const Plotly = await loadPlotly();
    let since = performance.now();
    while (waitingPanels.size) {
      for (const panel of compareDistance(waitingPanels)) {
        waitingPanels.delete(panel);
        if (!panel.isNear || !panel.figure || !panels.has(panel.element)) continue;
        await drawNow(Plotly, /** @type {Drawn} */ (panel));
        if (performance.now() - since < AT_ONCE_MS) continue;
        await yieldToBrowser();
        since = performance.now();
      }
    }
  } finally {
    isDrawing = false;
  }
}

/** Yields to more urgent tasks of the browser. @returns {Promise<void>} */
const yieldToBrowser = () =>
  window.scheduler?.yield ? window.scheduler.yield() : new Promise((resolve) => setTimeout(resolve));

/** Returns the panels sorted by their distance from the middle of the screen. @param {Set<Mounted>} candidates */
function compareDistance(candidates) {
  const distances = [...candidates].map((panel) => {
    const { top, height } = panel.element.getBoundingClientRect();
    return { panel, distance: Math.abs(top + height / 2 - innerHeight / 2) };
  });
  return distances.sort((a, b) => a.distance - b.distance).map(({ panel }) => panel);
}

/** @param {Plot.Library} Plotly @param {Drawn} panel */
async function drawNow(Plotly, panel) {
  const { element, figure } = panel;
  panel.isPainted = isPainted(figure.data);
  const data = /** @type {Plot.Trace[]} */ (panel.isPainted ? selectPlotted(figure.data) : figure.data);
  const layout = /** @type {Plot.Layout} */ ({
    ...figure.layout,
    width: element.clientWidth,
    height: element.clientHeight,
  });
  if (panel.isPainted) Object.assign(layout, { hovermode: false });
  if (!data.some(({ yaxis }) => yaxis === 'y2')) delete layout.yaxis2; // Plotly would draw an empty second plot
  const plotContent = panel.isPainted ? JSON.stringify([data, layout]) : '';
  if (panel.isDrawn && plotContent && plotContent === panel.plotContent) return placeAll(panel); // only painted curves changed
  await Plotly.react(element, data, layout, CONFIG);
  panel.plotContent = plotContent;
  if (panel.isDrawn) return keepCanvases(panel);
  panel.isDrawn = true;
  element.prepend(panel.shade);
  element.append(panel.line, panel.label);
  keepCanvases(panel);
  element.on('plotly_afterplot', () => placeAll(panel));
  element.on('plotly_relayouting', () => paintCurves(panel));
  element.on('plotly_hover', ({ points, event }) => {
    panel.hovered = points?.[0] ?? null;
    if (event) follow(panel, event);
  });
  element.on('plotly_unhover', () => {
    panel.hovered = null;
  });
  element.on('plotly_relayout', (change) => handleRelayout(panel, change));
  element.on('plotly_doubleclick', () => reset(Plotly, panel));
}

/** Moves the canvases to Plotly's current elements, which it may have recreated. @param {Drawn} panel */
function keepCanvases(panel) {
  const plot = panel.element.querySelector('.gl-container');
  if (panel.curves.parentElement === plot) return;
  plot?.append(panel.curves, panel.lit);
  placeAll(panel);
}

/** Draws the elements above and below Plotly's, e.g. after its axes have changed. @param {Drawn} panel */
function placeAll(panel) {
  paintCurves(panel);
  placeShade(panel);
  placeCursor(panel);
}

function purge(/** @type {Mounted} */ panel) {
  if (!panel.isDrawn) return;
  panel.isDrawn = false;
  panel.hovered = null;
  window.Plotly.purge(panel.element);
  panel.element.replaceChildren();
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let clickTimer;
let resetAt = -Infinity;

const MAX_CLICK_MOVE_PX = 4;

/**
 * Handles a press. A press and a release at the same position are a click, which opens the point or else pins the
 * cursor. Plotly covers the page while a button is down, so the release is handled on the document. In a zoomed panel a
 * click is delayed, because it may be the first half of the double click that resets the zoom.
 * @param {Mounted} mounted @param {PointerEvent} downEvent
 */
function handlePointerDown(mounted, downEvent) {
  if (downEvent.button !== 0 || !mounted.isDrawn) return;
  const panel = /** @type {Drawn} */ ({ ...mounted });
  const handleRelease = (/** @type {PointerEvent} */ upEvent) => {
    if (Math.hypot(upEvent.clientX - downEvent.clientX, upEvent.clientY - downEvent.clientY) > MAX_CLICK_MOVE_PX)
      return;
    if (performance.now() - resetAt < CONFIG.doubleClickDelay) return;
    const isZoomed = panel.figure.isZoomed || !panel.element._fullLayout.yaxis.autorange;
    clearTimeout(clickTimer);
    clickTimer = setTimeout(() => handleClick(panel, upEvent), isZoomed ? CONFIG.doubleClickDelay + 30 : 0);
  };
  document.addEventListener('pointerup', handleRelease, { capture: true, once: true });
}

/** @param {Drawn} panel @param {PointerEvent} event */
function handleClick(panel, event) {
  if (!panel.hovered || !isOnPoint(panel, event)) return pinUnder(panel, event);
  const { run, key } = panel.hovered.data.meta;
  return panel.handlers.onPoint?.(run, panel.hovered.customdata, key);
}

const PER_NOTCH = 1.2;

/** Stretches the y axis around the pointer, for Alt and the wheel. @param {Mounted} panel @param {WheelEvent} event */
function handleWheel({ element, isDrawn, handlers }, event) {
  if (!event.altKey || !isDrawn || !handlers.onRange) return;
  event.preventDefault();
  const { yaxis } = element._fullLayout;
  const top = event.clientY - element.getBoundingClientRect().top - yaxis._offset;
  const factor = event.deltaY > 0 ? PER_NOTCH : 1 / PER_NOTCH;
  const edge = (/** @type {number} */ pixel) => yaxis.p2d(top + (pixel - top) * factor);
  const [low, high] = [edge(yaxis._length), edge(0)];
  if (Number.isFinite(low) && low < high) handlers.onRange([low, high]);
}

/** @param {Drawn} panel @param {Record<string, any>} change */
function handleRelayout(panel, change) {
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

function handleLeave(/** @type {Mounted} */ panel) {
  panel.hovered = null;
  point(null);
  if (!panel.isDrawn) return;
  if (panel.isPainted) placeLabel(/** @type {Drawn} */ (panel));
  else window.Plotly.Fx.unhover(panel.element);
}

/**
 * A figure with a size.
 * @typedef {{data: Plot.Trace[], layout: Plot.Layout}} Standing
 */

/** Returns the SVG source of a figure. @param {Standing} figure @returns {Promise<string>} */
export async function renderPicture({ data, layout }) {
  const Plotly = await loadPlotly();
  const { width, height } = layout;
  return Plotly.toImage({ data, layout, config: CONFIG }, { format: 'svg', width, height, imageDataOnly: true });
}

/** Returns the visible range of a panel's y axis, or null before it is drawn. @param {HTMLElement | null} element */
export function readShownRange(element) {
  const panel = element && panels.get(element);
  return panel?.isDrawn ? /** @type {[number, number]} */ ([...panel.element._fullLayout.yaxis.range]) : null;
}
