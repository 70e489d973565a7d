/**
 * Converts API series to a Plotly figure. Pure: no page, no network, no Plotly. Every text for Plotly goes through
 * `plain`, because Plotly interprets markup in labels.
 */
import { withOpacity } from '../lib/colours.js';
import { formatValue } from '../lib/text/format.js';
import { isSparse } from '../lib/metrics.js';
import { makeMarkTrace, makeOnsetTraces } from './marks.js';
import { isMetricAxis, findXUnit } from '../lib/series.js';
import { escapeMarkup, scaleX } from './parts.js';
import { chooseBandToShade, findExtent, makeLayout } from './layout.js';
import { lookup } from '../lib/lookup.js';

/**
 * @typedef {import('../lib/series.js').Series} Series
 * @typedef {{series: Series, name: string, look: import('../lib/colours.js').Look,
 *   role?: 'main'|'raw'|'seed'|'raw seed', key?: string}} Line `key`: its identity if it differs from the series'; a
 *   'raw seed' is read and not drawn
 * @typedef {{metric: string, xKind: import('../lib/series.js').XKind, logX: boolean, logY: boolean,
 *   zoom: [number, number] | null, theme: Record<string, string>, healthy?: [number|null, number|null] | null,
 *   yRange?: [number, number] | null, outliers?: boolean, band?: string, unit?: string | null, titled?: boolean,
 *   marks?: {step: number, text: string}[], onsets?: import('../lib/runs/verdicts.js').Onset[]}} View `marks`: events
 *   of the one run that is drawn; `outliers`: false leaves them out of the y range; `band`: its kind;
 *   `titled`: axes have titles
 */

/** @typedef {ReturnType<typeof chooseXUnit>} Unit of the x axis */
/** @typedef {ReturnType<typeof makePath>} Path */

const AT_TOP = 0.97;
const AT_BOTTOM = 0.03;
/**
 * Symbol and edge of the panel for each kind of non-finite value.
 * @type {Record<string, {symbol: string, at: number, text: string}>}
 */
const NON_FINITE = {
  NaN: { symbol: 'x-thin', at: AT_TOP, text: 'NaN' },
  Infinity: { symbol: 'triangle-up', at: AT_TOP, text: '+∞' },
  '-Infinity': { symbol: 'triangle-down', at: AT_BOTTOM, text: '−∞' },
};

/** Returns the key that identifies a line: its run or its group. @param {Series} series */
export const seriesKey = (series) => series.run ?? series.group ?? series.name;

/**
 * Returns whether an x range contains no part of any series, including lines that cross it.
 * @param {Series[]} items
 * @param {[number, number]} zoom
 */
export const isOutside = (items, [from, to]) =>
  items.every(({ x, non_finite: nonFinite }) => {
    const xs = [...x, ...nonFinite.map((point) => point.x ?? point.step)];
    return xs.every((value) => value < from) || xs.every((value) => value > to);
  });

/**
 * Returns the unit of an x axis.
 * @param {import('../lib/series.js').XKind} kind
 * @param {number} largest
 * @returns {{size: number, unit: string}}
 */
export function chooseXUnit(kind, largest) {
  if (kind !== 'wall') return { size: 1, unit: escapeMarkup(findXUnit(kind)) };
  if (largest >= 10_800) return { size: 3600, unit: 'h' };
  return largest >= 300 ? { size: 60, unit: 'min' } : { size: 1, unit: 's' };
}

/**
 * The points of a line with a gap (null) at each non-finite value. `indexes` are those of the points in the series,
 * or -1 in a gap. Runs with a non-finite value are left out of a mean, and `n` counts the others. The mean has a gap if
 * no run is finite.
 * @param {Series} series @returns {{x: number[], y: (number|null)[], steps: number[], indexes: number[]}}
 */
export function makePath({ x, values, steps, gaps, non_finite: nonFinite }) {
  const indexes = values.map((_, index) => index);
  const breaks = gaps ?? nonFinite;
  if (!breaks.length) return { x, y: values, steps, indexes };
  /** @type {ReturnType<typeof makePath>} */
  const path = { x: [], y: [], steps: [], indexes: [] };
  const add = (
    /** @type {number} */ pointX,
    /** @type {number | null} */ y,
    /** @type {number} */ step,
    index = -1,
  ) => {
    path.x.push(pointX);
    path.y.push(y);
    path.steps.push(step);
    path.indexes.push(index);
  };
  let next = 0;
  for (const gap of breaks.map((point) => ({ step: point.step, x: point.x ?? point.step })).sort(compareByX)) {
    for (; next < x.length && (x[next] - gap.x || steps[next] - gap.step) <= 0; next += 1)
      add(x[next], values[next], steps[next], next);
    add(gap.x, null, gap.step);
  }
  for (; next < x.length; next += 1) add(x[next], values[next], steps[next], next);
  return path;
}

/** @typedef {{x: number, step: number}} Gap @param {Gap} a @param {Gap} b */
const compareByX = (a, b) => a.x - b.x || a.step - b.step;

/**
 * Replaces points without a logarithm by gaps if an axis is logarithmic.
 * @param {Path} path @param {View} view @returns {Path}
 */
function makeDrawable(path, { logX, logY }) {
  if (!logX && !logY) return path;
  const has = (/** @type {number} */ i) => (!logY || (path.y[i] ?? 0) > 0) && (!logX || path.x[i] > 0);
  return { ...path, y: path.y.map((value, i) => (has(i) ? value : null)) };
}

/**
 * Returns marker sizes that make points without neighbours visible.
 * @param {(number|null)[]} y
 * @returns {number[] | null}
 */
export function findIsolatedSizes(y) {
  const isGap = (/** @type {number} */ i) => i < 0 || i >= y.length || y[i] === null;
  const isAlone = (/** @type {number} */ i) => !isGap(i) && isGap(i - 1) && isGap(i + 1);
  let [isAny, index] = [isAlone(0), y.indexOf(null)];
  for (; !isAny && index >= 0; index = y.indexOf(null, index + 1)) isAny = isAlone(index + 1) || isAlone(index - 1);
  return isAny ? y.map((_, i) => (isAlone(i) ? 5 : 0)) : null;
}

/**
 * Returns the outline of a band in closed pieces, without points that have no spread (one seed) or, on a log axis, no
 * logarithm.
 * @param {Series} series @param {boolean} logY @returns {{x: (number|null)[], y: (number|null)[]}}
 */
export function makeBandOutline({ x, low: lows, high: highs }, logY = false) {
  const [low, high] = [lows ?? [], highs ?? []];
  const inside = (/** @type {number} */ i) =>
    typeof low[i] === 'number' && typeof high[i] === 'number' && (!logY || low[i] > 0);
  /** @type {{x: (number|null)[], y: (number|null)[]}} */
  const outline = { x: [], y: [] };
  for (let from = 0; from < x.length; from += 1) {
    if (!inside(from)) continue;
    let to = from;
    while (to + 1 < x.length && inside(to + 1)) to += 1;
    const [xs, top, bottom] = [x, high, low].map((values) => values.slice(from, to + 1));
    if (outline.x.length) {
      outline.x.push(null);
      outline.y.push(null);
    }
    outline.x.push(...xs, ...xs.slice().reverse());
    outline.y.push(...top, ...bottom.slice().reverse());
    from = to;
  }
  return outline;
}

/** Maximum number of points that are drawn as markers. An evaluation at every step is a curve instead. */
const MAX_MARKERS = 60;

/** Returns the line width, which is thinner if there are many lines. @param {number} count */
const chooseMainWidth = (count) => (count <= 4 ? 1.8 : count <= 12 ? 1.4 : 1);

const ROLES = {
  main: { width: 1.8, opacity: 1 },
  raw: { width: 1, opacity: 0.28 },
  'raw seed': { width: 0, opacity: 0 },
  seed: { width: 0.9, opacity: 0.45 },
};

/** @param {Line} line @param {View} view @param {Unit} unit */
function makeLineTrace(
  { series, name, look, role = 'main', key = seriesKey(series) },
  view,
  unit,
  maxWidth = Infinity,
) {
  const { x, y, steps, indexes } = makeDrawable(makePath(series), view);
  const { width, opacity } = ROLES[role];
  const markerSizes = findIsolatedSizes(y);
  const sparse = isSparse(view.metric) && y.length <= MAX_MARKERS;
  const spread = series.n ? '<br>%{text}' : '';
  return {
    type: 'scatter',
    x: scaleX(x, unit),
    y,
    customdata: steps,
    mode: sparse || markerSizes ? 'lines+markers' : 'lines',
    opacity,
    line: { color: look.colour, width: sparse ? 1 : Math.min(width, maxWidth), dash: look.dash, simplify: true },
    marker: sparse
      ? { symbol: 'square-open', size: 7, color: look.colour, line: { width: 1.5 } }
      : { color: look.colour, size: markerSizes ?? 4, line: { width: 0 } },
    meta: { key, run: series.run ?? null, role },
    name: escapeMarkup(name),
    hoverinfo: role === 'raw' ? 'skip' : undefined,
    text: makeSpreadTexts(series, indexes),
    hovertemplate:
      role === 'raw'
        ? undefined
        : `<b>${escapeMarkup(name)}</b>  %{y:.4~g}<br>${formatHoverPosition(view, unit, series)}${spread}<extra></extra>`,
  };
}

/**
 * Returns the traces of a mean. It is faint and thin at points with fewer runs, e.g. after the end of a run.
 * @param {Line} line @param {View} view @param {Unit} unit @param {number} maxWidth width
 */
function makeMeanTraces(line, view, unit, maxWidth) {
  const trace = makeLineTrace(line, view, unit, maxWidth);
  const { n } = line.series;
  if (!Array.isArray(n) || !n.length || Math.min(...n) === Math.max(...n)) return [trace];
  const mostRuns = Math.max(...n);
  const { indexes } = makePath(line.series);
  const isFew = (/** @type {number} */ i) => indexes[i] >= 0 && n[indexes[i]] < mostRuns;
  const touches = (/** @type {number} */ i) =>
    isFew(i) || (i > 0 && isFew(i - 1)) || (i + 1 < indexes.length && isFew(i + 1));
  const traceWhere = (
    /** @type {string} */ role,
    /** @type {(i: number) => boolean} */ has,
    /** @type {Plot.Trace} */ look,
  ) => {
    const y = trace.y.map((value, i) => (has(i) ? value : null));
    const markerSizes = findIsolatedSizes(y);
    return {
      ...trace,
      ...look,
      y,
      mode: markerSizes ? 'lines+markers' : trace.mode,
      meta: { ...trace.meta, role },
      marker: trace.marker.symbol ? trace.marker : { ...trace.marker, size: markerSizes ?? 4 },
    };
  };
  const thin = { opacity: 0.5, line: { ...trace.line, width: trace.line.width * 0.7 } };
  return [traceWhere('fewer', touches, thin), traceWhere('main', (i) => !isFew(i), {})];
}

/**
 * Returns, for each point of a mean, a text with its number of runs and the range of its band.
 * @param {Series} series @param {number[]} indexes
 */
function makeSpreadTexts({ n, runs, low, high }, indexes) {
  if (!n) return undefined;
  const formatCountAt = (/** @type {number} */ i) =>
    `n ${n[i]}${runs && runs.length > n[i] ? ` of ${runs.length}` : ''}`;
  return indexes.map((i) =>
    i < 0
      ? ''
      : `${formatCountAt(i)}${typeof low?.[i] === 'number' ? `, ${formatValue(low[i])} to ${formatValue(high?.[i])}` : ''}`,
  );
}

/**
 * Returns the position in a label. A mean over time has no step, because runs reach steps at different times.
 * @param {View} view @param {Unit} unit @param {Series} series
 */
const formatHoverPosition = ({ xKind }, { unit }, { n }) =>
  xKind === 'step'
    ? 'step %{customdata}'
    : `${n ? '' : 'step %{customdata} · '}${isMetricAxis(xKind) ? `${unit} %{x:.4~g}` : `%{x:.4~s} ${unit}`}`;

/** @param {Line} line @param {View} view @param {Unit} unit */
function makeBandTrace({ series, look, key = seriesKey(series) }, view, unit) {
  const { x, y } = makeBandOutline(series, view.logY);
  return {
    type: 'scatter',
    mode: 'lines',
    x: scaleX(x, unit),
    y,
    fill: 'toself',
    fillcolor: withOpacity(look.colour, 0.16),
    line: { width: 0 },
    hoverinfo: 'skip',
    meta: { key, run: null, role: 'band' },
  };
}

/** @param {Line} line @param {Unit} unit */
function makeNonFiniteTrace({ series, name, look, key = seriesKey(series) }, unit) {
  const points = series.non_finite;
  const draw = points.map(({ value }) => lookup(NON_FINITE, value));
  return {
    type: 'scatter',
    mode: 'markers',
    yaxis: 'y2',
    x: scaleX(
      points.map(({ x, step }) => x ?? step),
      unit,
    ),
    y: draw.map(({ at }) => at),
    customdata: points.map(({ step }) => step),
    text: draw.map(({ text }) => text),
    marker: {
      symbol: draw.map(({ symbol }) => symbol),
      size: 8,
      color: look.colour,
      line: { width: 2, color: look.colour },
    },
    meta: { key, run: series.run ?? null, role: 'non-finite' },
    name: escapeMarkup(name),
    hovertemplate: `<b>${escapeMarkup(name)}</b>  %{text}<br>step %{customdata}<extra></extra>`,
    cliponaxis: false,
  };
}

/**
 * Returns the traces in drawing order: events and bands, faint lines, means, markers.
 * @param {Line[]} lines
 * @param {View} view
 * @param {{size: number, unit: string}} unit
 */
export function makeTraces(lines, view, unit) {
  const linesWithRole = (/** @type {string} */ role) => lines.filter((line) => (line.role ?? 'main') === role);
  const main = linesWithRole('main');
  return [
    ...(isMetricAxis(view.xKind) ? [] : makeOnsetTraces(main, view, unit)),
    ...(view.marks?.length && main.length && !isMetricAxis(view.xKind)
      ? [makeMarkTrace(main[0].series, view, unit)]
      : []),
    ...main.filter(({ series }) => series.low?.length).map((line) => makeBandTrace(line, view, unit)),
    ...linesWithRole('raw').map((line) => makeLineTrace(line, view, unit)),
    ...linesWithRole('seed').map((line) => makeLineTrace(line, view, unit)),
    ...main.flatMap((line) => makeMeanTraces(line, view, unit, chooseMainWidth(main.length))),
    ...main.filter(({ series }) => series.non_finite.length).map((line) => makeNonFiniteTrace(line, unit)),
  ];
}

/**
 * @param {Line[]} lines
 * @param {View} view
 * @returns {{data: Plot.Trace[], layout: Plot.Layout, unit: Unit, isZoomed: boolean, healthy: (number|null)[] | null}}
 */
export function makeFigure(lines, view) {
  const extent = findExtent(lines, view.xKind);
  const unit = chooseXUnit(view.xKind, Math.max(extent[1], view.zoom?.[1] ?? 0));
  const layout = makeLayout(view, unit, lines, extent);
  if (!lines.length)
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { showticklabels: false, ticks: '' });
  return {
    data: makeTraces(lines, view, unit),
    layout,
    unit,
    isZoomed: Boolean(view.zoom),
    healthy: lines.length ? chooseBandToShade(view) : null,
  };
}
