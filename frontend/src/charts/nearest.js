/**
 * Finds the point of a painted panel below the pointer and shows its label. Plotly does so for the points that it
 * draws.
 */
import { formatShort, formatValue } from '../lib/text/format.js';
import { findLastAtOrBelow } from '../lib/reading.js';
import { makeScales } from './paint.js';
import { unescapeMarkup } from './parts.js';

/** @typedef {import('./mounted.js').Drawn} Drawn */

/** Distance in pixels from the pointer up to which a point is found, like Plotly's `hoverdistance`. */
const POINTER_RADIUS_PX = 40;
/** Roles of traces without points. Onsets are areas. */
const UNLABELLED_ROLES = ['band', 'raw', 'onset'];

/**
 * Returns the point or event nearest to the pointer, or null if none is near.
 * @param {Drawn} panel @param {MouseEvent} event @returns {Plot.Point | null}
 */
export function findNearestPoint({ element, figure }, event) {
  const { left, top } = element.getBoundingClientRect();
  const { xaxis, yaxis } = element._fullLayout;
  const [pointerX, pointerY] = [event.clientX - left - xaxis._offset, event.clientY - top - yaxis._offset];
  if (pointerX < 0 || pointerX > xaxis._length || pointerY < 0 || pointerY > yaxis._length) return null;
  const from = xaxis.p2d(pointerX - POINTER_RADIUS_PX);
  let bestDistance = POINTER_RADIUS_PX;
  /** @type {Plot.Point | null} */
  let hit = null;
  for (const trace of figure.data) {
    if (UNLABELLED_ROLES.includes(trace.meta.role)) continue;
    const { x, y } = makeScales(element, trace);
    for (let index = Math.max(0, findLastAtOrBelow(trace.x, from)); index < trace.x.length; index += 1) {
      if (trace.y[index] === null) continue;
      const distanceX = x(trace.x[index]) - pointerX;
      if (distanceX > bestDistance) break;
      const distance = Math.hypot(distanceX, y(trace.y[index]) - pointerY);
      if (distance < bestDistance) {
        bestDistance = distance;
        hit = makePoint(trace, index);
      }
    }
  }
  return hit ?? findOnsetBelow(figure.data, xaxis.p2d(pointerX));
}

/** @param {Plot.Trace} trace @param {number} index @returns {Plot.Point} */
const makePoint = (trace, index) => ({
  data: /** @type {Plot.Point['data']} */ (trace),
  customdata: trace.customdata[index],
  x: trace.x[index],
  y: trace.y[index],
  text: trace.text?.[index],
});

/** Returns the onset whose band is below the pointer. @param {Plot.Trace[]} data @param {number} x */
function findOnsetBelow(data, x) {
  const trace = data.find(({ meta, x: [startX, , endX] }) => meta.role === 'onset' && startX <= x && x <= endX);
  return trace ? { ...makePoint(trace, 2), text: trace.hovertext } : null;
}

/**
 * Returns the lines of a label: the curve's name and value, the position on the x axis, and the spread of a mean.
 * @param {Plot.Point} point @param {import('./figure.js').Unit} unit @returns {string[]}
 */
function formatPoint({ data: { meta, name }, customdata, x, y, text }, { unit }) {
  if (meta.role === 'onset') return [unescapeMarkup(text ?? '')];
  if (meta.role === 'mark') return [unescapeMarkup(text ?? ''), `step ${customdata}`];
  const hasValue = meta.role !== 'non-finite';
  const isMean = hasValue && text !== undefined;
  const position = [
    ...(isMean && unit !== 'step' ? [] : [`step ${customdata}`]),
    ...(unit === 'step' ? [] : [`${formatShort(x)} ${unescapeMarkup(unit)}`]),
  ];
  const value = hasValue ? formatValue(y) : (text ?? '');
  return [`${unescapeMarkup(name ?? '')}  ${value}`, position.join(' · '), ...(isMean && text ? [text] : [])];
}

/** Shows the label of the hovered point, or hides it. @param {Drawn} panel */
export function placeLabel({ element, figure, hovered, label }) {
  label.hidden = !hovered;
  if (!hovered) return;
  const { xaxis, yaxis } = element._fullLayout;
  const { x, y } = makeScales(element, hovered.data);
  const [left, top] = [x(hovered.x), Math.min(yaxis._length, Math.max(0, y(hovered.y)))];
  label.replaceChildren(
    ...formatPoint(hovered, figure.unit).map((text) =>
      Object.assign(document.createElement('span'), { textContent: text }),
    ),
  );
  label.classList.toggle('is-left', left > xaxis._length / 2);
  Object.assign(label.style, { left: `${xaxis._offset + left}px`, top: `${yaxis._offset + top}px` });
}
