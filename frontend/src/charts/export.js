/** Converts a panel to a self-contained figure with title, legend, axes with units and notes on its data. Pure. */
import { countText, deltaText } from '../lib/reading.js';
import { formatValue } from '../lib/text/format.js';
import { escapeMarkup } from './parts.js';

/** @typedef {import('./mounted.js').Figure} Figure */
/** @typedef {import('../lib/reading.js').Row} Row */
/**
 * @typedef {{title: string, subtitle: string, position: string, rows: Row[], notes: string[], link: string,
 *   theme: Record<string, string>, background: string, yRange: [number, number] | null, cursorX: number | null,
 *   mostEntries?: number}} About
 *   `position`: the position on the x axis at which the legend's values were read; `yRange`: of the visible
 *   axis, in its own units
 */

export const WIDTH = 1000;
const PLOT_HEIGHT = 460;
const LINE = 19;
const SMALL = 14;
const TOP = 78;
const MAX_NAME = 60;
const PER_LINE = 150;
/** A value beyond the range of every axis. */
const OUTSIDE_VALUE = 1e12;

/** @param {string} text @param {number} maxLength */
const shortenText = (text, maxLength) => (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text);

/** Splits a long text, e.g. a link, into lines. @param {string} text */
const wrapText = (text) => text.match(new RegExp(`.{1,${PER_LINE}}`, 'gsu')) ?? [];

/**
 * Returns a line's legend entry: its name and, if values were read, its value, the difference to the baseline and n.
 * @param {Row} row @param {string} position
 */
function formatEntry(row, position) {
  const { name, recorded, delta, isBaseline } = row;
  const count = countText(row);
  if (!position) return shortenText(name, MAX_NAME);
  return [
    shortenText(name, MAX_NAME),
    recorded ? formatValue(recorded.value) : 'no value',
    isBaseline ? '(baseline)' : delta !== null && `(${deltaText(delta)})`,
    count && `n ${count}`,
    row.isOlder && recorded && `at step ${recorded.step}`,
  ]
    .filter(Boolean)
    .join('  ');
}

/**
 * Returns the figure for a file, with the required height.
 * @param {Figure} figure @param {About} exportInfo
 * @returns {{data: Plot.Trace[], layout: Plot.Layout}} both as Plotly's own JSON
 */
export function makeExport({ data, layout, healthy, unit }, exportInfo) {
  const { theme, rows, mostEntries = 40 } = exportInfo;
  const main = rows.filter(({ role }) => role === 'main').slice(0, mostEntries);
  const omittedCount = rows.filter(({ role }) => role === 'main').length - main.length;
  const entries = new Map(
    main.map((row, rank) => [row.key, { name: escapeMarkup(formatEntry(row, exportInfo.position)), rank }]),
  );
  const notes = [
    ...exportInfo.notes,
    ...(omittedCount ? [`legend: the first ${main.length} of ${main.length + omittedCount} lines`] : []),
  ];
  const foot = [...wrapText(notes.join(' · ')), ...wrapText(exportInfo.link)];
  const bottom = 70 + main.length * LINE + (main.length ? LINE : 0) + foot.length * SMALL;
  const height = TOP + PLOT_HEIGHT + bottom;
  const belowPlot = (/** @type {number} */ pixels) => -pixels / PLOT_HEIGHT;
  return {
    data: data.map((trace) => {
      const entry = trace.meta.role === 'main' ? entries.get(trace.meta.key) : undefined;
      return { ...trace, showlegend: Boolean(entry), ...(entry ? { name: entry.name, legendrank: entry.rank } : {}) };
    }),
    layout: {
      ...layout,
      width: WIDTH,
      height,
      margin: { l: 84, r: 24, t: TOP, b: bottom },
      paper_bgcolor: exportInfo.background,
      title: {
        text: escapeMarkup(exportInfo.title),
        subtitle: { text: escapeMarkup(exportInfo.subtitle), font: { size: 12, color: theme.label } },
        x: 0,
        xanchor: 'left',
        xref: 'paper',
        y: 1 - 18 / height,
        yanchor: 'top',
        font: { size: 18, color: theme.ink },
      },
      showlegend: main.length > 0,
      legend: {
        title: { text: escapeMarkup(exportInfo.position), font: { size: 12 } },
        orientation: 'v',
        x: 0,
        xanchor: 'left',
        y: belowPlot(52),
        yanchor: 'top',
        itemsizing: 'constant',
        font: { size: 12, color: theme.ink },
      },
      yaxis: { ...layout.yaxis, ...(exportInfo.yRange ? { range: exportInfo.yRange, autorange: false } : {}) },
      shapes: [...makeHealthyShape(healthy, theme), ...makeCursorShape(exportInfo.cursorX, unit.size, layout, theme)],
      annotations: [
        {
          text: foot.map(escapeMarkup).join('<br>'),
          showarrow: false,
          xref: 'paper',
          yref: 'paper',
          x: 0,
          y: belowPlot(bottom - 6),
          xanchor: 'left',
          yanchor: 'bottom',
          align: 'left',
          font: { size: 10, color: theme.label },
        },
      ],
    },
  };
}

/** @param {(number | null)[] | null} healthy @param {Record<string, string>} theme */
function makeHealthyShape(healthy, theme) {
  if (!healthy) return [];
  const [low, high] = healthy;
  return [
    {
      type: 'rect',
      layer: 'below',
      xref: 'paper',
      x0: 0,
      x1: 1,
      yref: 'y',
      y0: low ?? -OUTSIDE_VALUE,
      y1: high ?? OUTSIDE_VALUE,
      fillcolor: theme.good,
      opacity: 0.07,
      line: { width: 0 },
    },
  ];
}

/** @param {number | null} x @param {number} size @param {Plot.Layout} layout @param {Record<string, string>} theme */
const makeCursorShape = (x, size, layout, theme) =>
  x === null
    ? []
    : [
        {
          type: 'line',
          yref: 'paper',
          y0: 0,
          y1: 1,
          x0: layout.xaxis.type === 'log' ? Math.log10(x / size) : x / size,
          x1: layout.xaxis.type === 'log' ? Math.log10(x / size) : x / size,
          line: { color: theme.label, width: 1, dash: 'dash' },
        },
      ];
