/** Axes of a panel and the elements behind its lines: ranges, titles and the healthy band. Pure. */
import { lookup } from '../lib/lookup.js';
import { isMetricAxis } from '../lib/series.js';
import { findLimits, logLabels, makeYAxis } from './limits.js';
import { escapeMarkup } from './parts.js';

/** @typedef {import('./figure.js').Line} Line */
/** @typedef {import('./figure.js').View} View */

/** @param {View} view @param {boolean} log */
const makeAxis = ({ theme }, log) => ({
  type: log ? 'log' : 'linear',
  automargin: false,
  gridcolor: theme.grid,
  linecolor: theme.axis,
  zeroline: false,
  tickcolor: theme.axis,
  tickfont: { size: 11, color: theme.label },
  exponentformat: 'e',
  hoverformat: '.4~g',
  minor: { showgrid: false },
  ticklabeloverflow: 'allow', // to find those that reach beyond the panel, Plotly measures all
  ...(log ? { dtick: undefined, nticks: 5, tickformat: '.3~g' } : {}),
});

/** Returns the band of healthy values, or null. An open side extends to the panel's edge. @param {View} view */
export const chooseBandToShade = ({ healthy, logY }) =>
  healthy && !logY && healthy.some((edge) => typeof edge === 'number') ? healthy : null;

const FIRST_STEPS = 10;

/**
 * Returns the x range that all panels share, with room for the first steps of a new run. A log axis is automatic.
 * @param {View} view @param {{size: number}} unit @param {[number, number]} extent @returns {[number, number] | null}
 */
function findWholeRange({ xKind, logX }, { size }, [from, to]) {
  if (logX || !(to > from || xKind === 'step')) return null;
  const end = xKind === 'step' ? Math.max(to, FIRST_STEPS) : to;
  const margin = (end - from) * 0.02;
  return [(from - margin) / size, (end + margin) / size];
}

/**
 * Returns the x range of a zoom. On a log axis, a zoom that starts at or below 0 starts at the first positive x
 * instead, and one that ends there shows the complete range.
 * @param {View} view @param {{size: number}} unit @param {Line[]} lines @returns {number[] | null}
 */
function zoomRange({ zoom, logX }, { size }, lines) {
  if (!zoom || (logX && zoom[1] <= 0)) return null;
  const [from, to] = zoom;
  if (!logX) return [from / size, to / size];
  const smallestX = Math.min(...lines.map(({ series }) => series.x.find((x) => x > 0) ?? Infinity));
  const start = from > 0 ? from : smallestX < to ? smallestX : to / 10;
  return [Math.log10(start / size), Math.log10(to / size)];
}

/**
 * Returns the smallest and largest x of some lines. 0 is included, except on an axis of a metric.
 * @param {Line[]} lines @param {View['xKind']} xKind @returns {[number, number]}
 */
export function findExtent(lines, xKind) {
  const ends = lines.flatMap(({ series: { x, non_finite: nonFinite } }) => [
    x[0],
    x.at(-1),
    ...nonFinite.map(({ x: pointX, step }) => pointX ?? step),
  ]);
  const finiteEnds = ends.filter((end) => end !== undefined).filter(Number.isFinite);
  if (!finiteEnds.length) return [0, 0];
  return [Math.min(...finiteEnds, ...(isMetricAxis(xKind) ? [] : [0])), Math.max(...finiteEnds)];
}

/** @type {Record<string, string>} */
const X_TITLES = {
  step: 'step',
  wall: 'training time',
  tokens: 'generated tokens',
  samples: 'sampled completions',
  flops: 'floating-point operations',
};

/** Returns the titles of the axes with their units. @param {View} view @param {string} xUnit */
const makeAxisTitles = ({ xKind, metric, unit, theme }, xUnit) => {
  const font = { size: 12, color: theme.label };
  const xTitle = xKind === 'wall' ? `${X_TITLES.wall} (${xUnit})` : (lookup(X_TITLES, xKind) ?? escapeMarkup(xKind));
  return {
    x: { title: { text: xTitle, standoff: 8, font } },
    y: { title: { text: escapeMarkup(unit ? `${metric} (${unit})` : metric), standoff: 8, font } },
  };
};

/**
 * @param {View} view @param {{size: number, unit: string}} unit @param {Line[]} lines
 * @param {[number, number]} extent of x
 */
export function makeLayout(view, unit, lines, extent) {
  const range = zoomRange(view, unit, lines) ?? findWholeRange(view, unit, extent);
  const limits = findLimits(lines, view);
  const titles = view.titled ? makeAxisTitles(view, unit.unit) : { x: {}, y: {} };
  const xRange = range ? { range, autorange: false } : { autorange: true };
  return {
    autosize: true,
    margin: view.titled ? { l: 76, r: 16, t: 8, b: 52 } : { l: 52, r: 16, t: 8, b: view.logX ? 30 : 24 },
    showlegend: false,
    hovermode: 'closest',
    hoverdistance: 40,
    dragmode: 'zoom',
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family: view.theme.font, size: 11, color: view.theme.label },
    hoverlabel: {
      bgcolor: view.theme.raised,
      bordercolor: view.theme.axis,
      align: 'left',
      font: { family: view.theme.font, size: 12, color: view.theme.ink },
    },
    uirevision: [view.metric, view.xKind, view.logX, view.logY, view.yRange, view.outliers].join('|'),
    xaxis: {
      ...makeAxis(view, view.logX),
      ...titles.x,
      ...xRange,
      nticks: 6,
      ticksuffix: view.xKind === 'wall' ? ` ${unit.unit}` : '',
      tickformat: isMetricAxis(view.xKind) ? '.4~g' : view.xKind === 'wall' ? '' : '~s',
      uirevision: JSON.stringify(view.zoom),
    },
    yaxis: {
      ...makeAxis(view, view.logY),
      ...titles.y,
      nticks: view.logY ? logLabels(lines, limits, 5) : 5,
      ...makeYAxis(limits, view.logY),
    },
    yaxis2: { overlaying: 'y', range: [0, 1], fixedrange: true, visible: false },
  };
}
