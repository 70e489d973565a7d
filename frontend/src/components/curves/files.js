/** Saves a panel as files: a picture, its curves or its figure. */
import { theme as shade } from '../../app/state.js';
import { cursor } from '../../charts/cursor.js';
import { readShownRange } from '../../charts/draw.js';
import { makeExport } from '../../charts/export.js';
import { makeFigure } from '../../charts/figure.js';
import { makeChartTheme } from '../../charts/theme.js';
import { download, fileName } from '../../app/actions.js';
import { curvesAsCsv, positionText, readLines } from '../../lib/reading.js';
import { askedFigure } from './figure_dialog.js';

/**
 * @typedef {{view: import('./panel.js').PanelView, shown: import('../../charts/figure.js').View,
 *   lines: import('./lines.js').Line[], notes: {text: string}[], about: Api.MetricEntry | undefined,
 *   element?: HTMLElement | null, link?: string, mostEntries?: number,
 *   ends?: import('./lines.js').Line[]}} Drawn `element`: panel on the page, whose y range is kept; `ends`: the lines
 *   with their ends, which are in the legend unless a cursor is pinned
 */

/** Returns the visible state of a panel as a self-contained figure. @param {Drawn} chart */
export function describeChart(chart) {
  const { view, shown, lines, notes, about, ends, element = null, link = location.href, mostEntries } = chart;
  const cursorNow = cursor.peek();
  const x = cursorNow?.isPinned ? cursorNow.x : null;
  const theme = makeChartTheme(shade.peek());
  const { rows } = readLines(x === null && ends ? ends : lines, x ?? Infinity, view.baseline || null);
  return makeExport(makeFigure(lines, { ...shown, theme, titled: true }), {
    title: shown.metric,
    subtitle: about?.meaning ?? '',
    position: x !== null || ends ? positionText(view.x, x ?? Infinity) : '',
    rows,
    notes: notes.map(({ text }) => text),
    link,
    mostEntries,
    theme,
    background: theme.background,
    yRange: readShownRange(element),
    cursorX: x,
  });
}

/** Returns the files as which a panel can be saved. @param {Drawn} chart @returns {import('./tools.js').File[]} */
export function listFiles(chart) {
  const { metric } = chart.shown;
  const name = fileName(metric);
  return [
    {
      label: 'Figure (PDF, SVG, PNG)',
      run: () => {
        askedFigure.value = metric;
      },
    },
    {
      label: 'Curves (CSV)',
      run: () => download(curvesAsCsv([{ lines: chart.lines, metric }], chart.view.x), `${name}.csv`),
    },
    {
      label: 'Data (Plotly JSON)',
      run: () => download(JSON.stringify(describeChart(chart)), `${name}.json`, 'application/json'),
    },
  ];
}
