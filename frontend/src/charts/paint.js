/**
 * Paints the curves of panels with many lines on a canvas. Plotly still draws the axes, events and zoom of these
 * panels. Its SVG takes a fifth of a second for fifty lines, and a canvas a few milliseconds.
 */
import { lookup } from '../lib/lookup.js';

/** @typedef {{x: (value: number) => number, y: (value: number) => number}} Scales to pixels of the plot area */

const MAX_IN_SVG = 12;
const PLOTLY_ROLES = ['mark', 'onset'];

/** Returns whether a figure has more lines than Plotly draws quickly. @param {Plot.Trace[]} data */
export const isPainted = (data) =>
  data.filter(({ meta }) => !PLOTLY_ROLES.includes(meta.role) && meta.role !== 'non-finite').length > MAX_IN_SVG;

/** Returns the traces that are painted. @param {Plot.Trace[]} data */
export const selectPainted = (data) => data.filter(({ meta }) => !PLOTLY_ROLES.includes(meta.role));

/**
 * Returns the traces of a painted figure that Plotly draws: events, and the corners of the curves for the range of the
 * axes.
 */
export const selectPlotted = (/** @type {Plot.Trace[]} */ data) => [
  ...data.filter(({ meta }) => PLOTLY_ROLES.includes(meta.role)),
  findCorners(selectPainted(data).filter(({ yaxis }) => yaxis !== 'y2')),
];

/** Returns an invisible trace with the same extent as other traces. @param {Plot.Trace[]} traces */
function findCorners(traces) {
  /** @type {Record<'x' | 'y', [number, number]>} */
  const corners = { x: [Infinity, -Infinity], y: [Infinity, -Infinity] };
  const stretch = (/** @type {number[]} */ ends, /** @type {(number | null)[]} */ values) => {
    for (const value of values) {
      if (value === null) continue;
      if (value < ends[0]) ends[0] = value;
      if (value > ends[1]) ends[1] = value;
    }
  };
  for (const { x, y } of traces) {
    stretch(corners.x, x);
    stretch(corners.y, y);
  }
  const withGap = (/** @type {[number, number]} */ [low, high]) => (low <= high ? [low, null, high] : []);
  return {
    type: 'scatter',
    mode: 'lines',
    x: withGap(corners.x),
    y: withGap(corners.y),
    hoverinfo: 'skip',
    meta: { key: null, run: null, role: 'corners' },
  };
}

/**
 * Returns the current scales of the axes, also while an axis is dragged.
 * @param {Plot.Graph} element @param {Plot.Trace} trace @returns {Scales}
 */
export function makeScales({ _fullLayout: { xaxis, yaxis } }, { yaxis: name }) {
  const height = yaxis._length;
  const placeY = makePlacer(yaxis, height);
  return {
    x: makePlacer(xaxis, xaxis._length),
    y: name === 'y2' ? (share) => height * (1 - share) : (value) => height - placeY(value),
  };
}

/** @param {Plot.Axis} axis @param {number} length @returns {(value: number) => number} */
function makePlacer({ range: [from, to], type }, length) {
  const factor = length / (to - from);
  return type === 'log' ? (value) => (Math.log10(value) - from) * factor : (value) => (value - from) * factor;
}

/**
 * Paints traces over the plot area, replacing the content of the canvas.
 * @param {HTMLCanvasElement} canvas @param {Plot.Graph} element @param {Plot.Trace[]} traces
 */
export function paint(canvas, element, traces) {
  const { xaxis, yaxis } = element._fullLayout;
  const size = { left: xaxis._offset, top: yaxis._offset, width: xaxis._length, height: yaxis._length };
  for (const [name, pixels] of Object.entries(size)) canvas.style.setProperty(name, `${pixels}px`);
  canvas.width = Math.max(1, Math.round(size.width * devicePixelRatio)); // this also clears it
  canvas.height = Math.max(1, Math.round(size.height * devicePixelRatio));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.scale(canvas.width / size.width, canvas.height / size.height);
  for (const trace of traces) {
    context.globalAlpha = trace.opacity ?? 1;
    const scales = makeScales(element, trace);
    if (trace.fill) fill(context, trace, scales);
    else if (trace.mode.includes('lines')) stroke(context, trace, scales);
    if (trace.mode.includes('markers')) drawMarkers(context, trace, scales);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Plot.Trace} trace @param {Scales} scales */
function traceCurve(context, { x: xs, y: ys }, { x, y }) {
  context.beginPath();
  let isDown = false;
  for (let index = 0; index < xs.length; index += 1) {
    if (ys[index] === null) isDown = false;
    else if (isDown) context.lineTo(x(xs[index]), y(ys[index]));
    else {
      context.moveTo(x(xs[index]), y(ys[index]));
      isDown = true;
    }
  }
}

/** @type {Record<string, number[]>} */
const DASHES = { solid: [], dot: [3, 3], dash: [9, 9], dashdot: [9, 3, 3, 3] };

/** @param {CanvasRenderingContext2D} context @param {Plot.Trace} trace @param {Scales} scales */
function stroke(context, trace, scales) {
  const { color, width, dash } = trace.line;
  Object.assign(context, { strokeStyle: color, lineWidth: width, lineJoin: 'round' });
  context.setLineDash(lookup(DASHES, dash) ?? []);
  traceCurve(context, trace, scales);
  context.stroke();
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {Plot.Trace} trace @param {Scales} scales */
function fill(context, trace, scales) {
  context.fillStyle = trace.fillcolor;
  traceCurve(context, trace, scales);
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {Plot.Trace} trace @param {Scales} scales */
function drawMarkers(context, { x: xs, y: ys, marker }, { x, y }) {
  Object.assign(context, { fillStyle: marker.color, strokeStyle: marker.color, lineWidth: marker.line?.width || 1 });
  for (let index = 0; index < xs.length; index += 1) {
    const radius = (Array.isArray(marker.size) ? marker.size[index] : marker.size) / 2;
    const symbol = Array.isArray(marker.symbol) ? marker.symbol[index] : marker.symbol;
    if (ys[index] !== null && radius > 0)
      lookup(SYMBOLS, symbol ?? 'circle')(context, x(xs[index]), y(ys[index]), radius);
  }
}

/** @type {Record<string, (context: CanvasRenderingContext2D, x: number, y: number, half: number) => void>} */
const SYMBOLS = {
  circle(context, x, y, radius) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  },
  'square-open': (context, x, y, radius) => context.strokeRect(x - radius, y - radius, 2 * radius, 2 * radius),
  'x-thin'(context, x, y, radius) {
    context.beginPath();
    context.moveTo(x - radius, y - radius);
    context.lineTo(x + radius, y + radius);
    context.moveTo(x - radius, y + radius);
    context.lineTo(x + radius, y - radius);
    context.stroke();
  },
  'triangle-up': (context, x, y, radius) => drawTriangle(context, x, y, radius),
  'triangle-down': (context, x, y, radius) => drawTriangle(context, x, y, -radius),
};

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} height */
function drawTriangle(context, x, y, height) {
  context.beginPath();
  context.moveTo(x, y - height);
  context.lineTo(x + height, y + height / 2);
  context.lineTo(x - height, y + height / 2);
  context.fill();
}
