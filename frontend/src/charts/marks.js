/** Traces of events and onsets over the full height of a panel. Pure. */
import { withOpacity } from '../lib/colours.js';
import { escapeMarkup, scaleX, findXOfStep } from './parts.js';

/** @typedef {import('./figure.js').Line} Line */
/** @typedef {import('./figure.js').Series} Series */
/** @typedef {import('./figure.js').Unit} Unit */
/** @typedef {import('./figure.js').View} View */

/** Returns a dotted vertical line at each event. @param {Series} series @param {View} view @param {Unit} unit */
export function makeMarkTrace(series, { marks = [], xKind, theme }, unit) {
  const placedMarks = marks
    .map(({ step, text }) => ({ step, text, x: xKind === 'step' ? step : findXOfStep(series, step) }))
    .filter(({ x }) => typeof x === 'number');
  /** @template T @param {(mark: {step: number, text: string, x: number}) => T[]} values */
  const perMark = (values) => placedMarks.flatMap(values);
  return {
    type: 'scatter',
    mode: 'lines+markers',
    yaxis: 'y2',
    x: scaleX(
      perMark(({ x }) => [x, x, null]),
      unit,
    ),
    y: perMark(() => [0, 1, null]),
    customdata: perMark(({ step }) => [step, step, null]),
    text: perMark(({ text }) => [escapeMarkup(text), escapeMarkup(text), '']),
    line: { width: 1, dash: 'dot', color: theme.label },
    marker: { symbol: perMark(() => ['line-ew', 'triangle-down', 'line-ew']), size: 7, color: theme.label },
    meta: { key: null, run: series.run ?? null, role: 'mark' },
    hovertemplate: '%{text}<br>step %{customdata}<extra></extra>',
    cliponaxis: false,
  };
}

/** Height of the label next to the band, as a fraction of the panel's height. */
const WORD_AT = 0.94;

/**
 * Returns a band from the last healthy to the first unhealthy step of each run whose goal fell, in the colour of its
 * line. The band of a single run has the colour of alarms, and a label. Runs that share a mean share a band. A mean
 * over time or tokens has no bands, because a step of one of its runs has no position there.
 * @param {Line[]} lines @param {View} view @param {Unit} unit
 */
export function makeOnsetTraces(lines, { onsets = [], xKind, theme }, unit) {
  const isOne = lines.length === 1 && onsets.length === 1;
  return lines.flatMap((line) => {
    const { series } = line;
    if (xKind !== 'step' && !series.run) return [];
    const inside = onsets.filter(({ run }) => series.run === run || series.runs?.includes(run));
    if (!inside.length) return [];
    const [from, to] = [Math.min(...inside.map((onset) => onset.from)), Math.max(...inside.map((onset) => onset.to))];
    const [startX, endX] = [from, to].map((step) => (xKind === 'step' ? step : findXOfStep(series, step)));
    if (typeof endX !== 'number') return [];
    const first = typeof startX === 'number' ? startX : endX;
    const colour = isOne ? theme.bad : line.look.colour;
    const text =
      inside.length === 1
        ? inside[0].text
        : `${line.name}: ${inside.length} runs fell, onsets between steps ${from} and ${to}`;
    return {
      type: 'scatter',
      mode: isOne ? 'lines+text' : 'lines',
      yaxis: 'y2',
      fill: 'toself',
      x: scaleX([first, first, endX, endX, first, null, endX], unit),
      y: [0, 1, 1, 0, 0, null, WORD_AT],
      customdata: [to, to, to, to, to, null, to],
      text: ['', '', '', '', '', '', isOne ? ' onset' : ''],
      hovertext: escapeMarkup(text),
      textposition: 'middle right',
      textfont: { size: 11, color: colour },
      line: { width: 1, color: withOpacity(colour, isOne ? 1 : 0.5) },
      fillcolor: withOpacity(colour, isOne ? 0.16 : 0.08),
      meta: { key: null, run: inside[0].run, role: 'onset' },
      hovertemplate: '%{hovertext}<extra></extra>',
    };
  });
}
