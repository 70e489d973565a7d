/** Helpers of all traces of a panel: text that Plotly does not read as markup, and positions on the x axis. Pure. */
import { visible } from '../lib/text/visible.js';

/** @typedef {import('./figure.js').Series} Series */
/** @typedef {import('./figure.js').Unit} Unit */

/** Text that Plotly shows as it is. @param {unknown} text */
export const plain = (text) =>
  visible(String(text))
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('%{', '%\u200b{');

/** A text of `plain` for an element of the page, which reads no markup. @param {string} text */
export const unescaped = (text) =>
  text.replaceAll('%\u200b{', '%{').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');

/**
 * Where on the x axis a step of a line lies: at its point, or at the last one before it.
 * @param {Series} series @param {number} step
 */
export function xOfStep({ x, steps }, step) {
  const after = steps.findIndex((recordedStep) => recordedStep > step);
  return x[after < 0 ? steps.length - 1 : after - 1];
}

/** The recorded x of each scaled list. @type {WeakMap<(number | null)[], (number | null)[]>} */
const recorded = new WeakMap();

/** @param {(number | null)[]} x @param {Unit} unit */
export function scaled(x, { size }) {
  if (size === 1) return x;
  const scaledX = x.map((value) => (value === null ? null : value / size));
  recorded.set(scaledX, x);
  return scaledX;
}

/**
 * The recorded x of a value of `scaled`. The product of the value and the size is often a little smaller, and a reading
 * there finds the point before.
 * @param {(number | null)[] | undefined} scaledX @param {number} value @param {Unit} unit @returns {number}
 */
export function unscaled(scaledX, value, { size }) {
  const x = scaledX && recorded.get(scaledX)?.[scaledX.lastIndexOf(value)];
  return x ?? value * size;
}
