/** Axes of a panel and what lies behind its lines: ranges, the healthy band, a flat line's room. Pure. */
/** @typedef {import('./figure.js').Line} Line */
/** @typedef {import('./figure.js').View} View */

/** @param {View} view @param {boolean} log */
const axis = ({ theme }, log) => ({
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
  ...(log ? { dtick: undefined, nticks: 5 } : {}),
});

/** The band in which a healthy run stays; an open side reaches to the panel's edge. @param {View} view */
export const bandToShade = ({ healthy, logY }) =>
  healthy && !logY && healthy.some((edge) => typeof edge === 'number') ? healthy : null;

const FIRST_STEPS = 10;

/**
 * The same x range in all panels; a run that has just begun gets room for its first steps. A log axis finds its own.
 * @param {View} view @param {{size: number}} unit @param {[number, number]} extent @returns {[number, number] | null}
 */
function wholeRange({ xKind, logX }, { size }, [from, to]) {
  if (logX || !(to > from || xKind === 'step')) return null;
  const end = xKind === 'step' ? Math.max(to, FIRST_STEPS) : to;
  const room = (end - from) * 0.02;
  return [(from - room) / size, (end + room) / size];
}

/** Least and largest x of some lines. @param {Line[]} lines @returns {[number, number]} */
export function extentOf(lines) {
  const ends = lines.flatMap(({ series: { x, non_finite: strange } }) => [
    x[0],
    x.at(-1),
    ...strange.map(({ x: at, step }) => at ?? step),
  ]);
  const known = ends.filter((end) => end !== undefined).filter(Number.isFinite);
  return known.length ? [Math.min(0, ...known), Math.max(...known)] : [0, 0];
}

/** The one value that all curves have at all points; null where they differ. @param {Line[]} lines */
function flatValue(lines) {
  const values = lines.flatMap(({ series: { values: means, low, high } }) =>
    [...means, ...(low ?? []), ...(high ?? [])].filter((value) => typeof value === 'number'),
  );
  return values.length && values.every((value) => value === values[0]) ? values[0] : null;
}

/**
 * A constant stands in the middle of a scale from 0, so that a small learning rate can be read; zeros stand on the
 * floor. How far wide bands may stretch the y axis beyond the curves: the band of two seeds would hide everything else.
 * @param {Line[]} lines @param {View} view
 */
function yLimits(lines, { logY }) {
  const flat = logY ? null : flatValue(lines);
  if (flat !== null)
    return flat === 0
      ? { rangemode: 'nonnegative' }
      : { range: [Math.min(0, 2 * flat), Math.max(0, 2 * flat)], autorange: false };
  if (logY || !lines.some(({ series: { low } }) => low?.length)) return {};
  const values = lines.flatMap(({ series }) => series.values);
  const [from, to] = values.reduce(
    ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
    [Infinity, -Infinity],
  );
  const room = to > from ? (to - from) * 0.5 : Math.abs(to) || 1;
  return Number.isFinite(room) ? { autorangeoptions: { clipmin: from - room, clipmax: to + room } } : {};
}

/**
 * @param {View} view @param {{size: number, unit: string}} unit @param {Line[]} lines
 * @param {[number, number]} extent of x
 */
export function layoutOf(view, unit, lines, extent) {
  const edge = (/** @type {number} */ value) => (view.logX ? Math.log10(Math.max(value, Number.MIN_VALUE)) : value);
  const range = view.zoom?.map((value) => edge(value / unit.size)) ?? wholeRange(view, unit, extent);
  const xRange = range ? { range, autorange: false } : { autorange: true };
  return {
    autosize: true,
    margin: { l: 52, r: 16, t: 8, b: view.logX ? 30 : 24 },
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
    uirevision: [view.metric, view.xKind, view.logX, view.logY].join('|'),
    xaxis: {
      ...axis(view, view.logX),
      ...xRange,
      nticks: 6,
      ticksuffix: unit.unit === 'step' || unit.unit === 'tokens' ? '' : ` ${unit.unit}`,
      tickformat: view.xKind === 'wall' ? '' : '~s',
      uirevision: JSON.stringify(view.zoom),
    },
    yaxis: { ...axis(view, view.logY), nticks: 5, ...yLimits(lines, view) },
    yaxis2: { overlaying: 'y', range: [0, 1], fixedrange: true, visible: false },
  };
}
