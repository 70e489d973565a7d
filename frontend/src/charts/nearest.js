/**
 * Finds the point of a painted panel below the pointer and shows its label. Plotly does so for the points that it
 * draws.
 */
import { formatShort, formatValue } from '../lib/text/format.js';
import { lastAtOrBelow } from '../lib/reading.js';
import { scalesOf } from './paint.js';
import { unescaped } from './parts.js';

/** @typedef {import('./mounted.js').Drawn} Drawn */

/** Distance in pixels from the pointer up to which a point is found, like Plotly's `hoverdistance`. */
const POINTER_RADIUS_PX = 40;
/** Roles of traces without points. Onsets are areas. */
const UNLABELLED_ROLES = ['band', 'raw', 'onset'];

/**
 * Returns the point or event nearest to the pointer, or null if none is near.
 * @param {Drawn} panel @param {MouseEvent} event @returns {Plot.Point | null}
 */
export function nearestPoint({ element, figure }, event) {
  const { left, top } = element.getBoundingClientRect();
  const { xaxis, yaxis } = element._fullLayout;
  const [pointerX, pointerY] = [event.clientX - left - xaxis._offset, event.clientY - top - yaxis._offset];
  if (pointerX < 0 || pointerX > xaxis._length || pointerY < 0 || pointerY > yaxis._length) return null;
  const from = xaxis.p2d(pointerX - POINTER_RADIUS_PX);
  let best = POINTER_RADIUS_PX;
  /** @type {Plot.Point | null} */
  let nearest = null;
  for (const trace of figure.data) {
    if (UNLABELLED_ROLES.includes(trace.meta.role)) continue;
    const { x, y } = scalesOf(element, trace);
    for (let at = Math.max(0, lastAtOrBelow(trace.x, from)); at < trace.x.length; at += 1) {
      if (trace.y[at] === null) continue;
      const distanceX = x(trace.x[at]) - pointerX;
      if (distanceX > best) break;
      const distance = Math.hypot(distanceX, y(trace.y[at]) - pointerY);
      if (distance < best) {
        best = distance;
        nearest = pointAt(trace, at);
      }
    }
  }
  return nearest ?? onsetBelow(figure.data, xaxis.p2d(pointerX));
}

/** @param {Plot.Trace} trace @param {number} at @returns {Plot.Point} */
const pointAt = (trace, at) => ({
  data: /** @type {Plot.Point['data']} */ (trace),
  customdata: trace.customdata[at],
  x: trace.x[at],
  y: trace.y[at],
  text: trace.text?.[at],
});

/** Returns the onset whose band is below the pointer. @param {Plot.Trace[]} data @param {number} x */
function onsetBelow(data, x) {
  const trace = data.find(({ meta, x: [left, , right] }) => meta.role === 'onset' && left <= x && x <= right);
  return trace ? { ...pointAt(trace, 2), text: trace.hovertext } : null;
}

/**
 * Returns the lines of a label: the curve's name and value, the position on the x axis, and the spread of a mean.
 * @param {Plot.Point} point @param {import('./figure.js').Unit} unit @returns {string[]}
 */
function wordsOf({ data: { meta, name }, customdata, x, y, text }, { unit }) {
  if (meta.role === 'onset') return [unescaped(text ?? '')];
  if (meta.role === 'mark') return [unescaped(text ?? ''), `step ${customdata}`];
  const hasValue = meta.role !== 'non-finite';
  const isMean = hasValue && text !== undefined;
  const position = [
    ...(isMean && unit !== 'step' ? [] : [`step ${customdata}`]),
    ...(unit === 'step' ? [] : [`${formatShort(x)} ${unescaped(unit)}`]),
  ];
  const value = hasValue ? formatValue(y) : (text ?? '');
  return [`${unescaped(name ?? '')}  ${value}`, position.join(' · '), ...(isMean && text ? [text] : [])];
}

/** Shows the label of the hovered point, or hides it. @param {Drawn} panel */
export function placeLabel({ element, figure, hovered, label }) {
  label.hidden = !hovered;
  if (!hovered) return;
  const { xaxis, yaxis } = element._fullLayout;
  const { x, y } = scalesOf(element, hovered.data);
  const [left, top] = [x(hovered.x), Math.min(yaxis._length, Math.max(0, y(hovered.y)))];
  label.replaceChildren(
    ...wordsOf(hovered, figure.unit).map((text) =>
      Object.assign(document.createElement('span'), { textContent: text }),
    ),
  );
  label.classList.toggle('is-left', left > xaxis._length / 2);
  Object.assign(label.style, { left: `${xaxis._offset + left}px`, top: `${yaxis._offset + top}px` });
}
