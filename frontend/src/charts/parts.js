/** Helpers for all traces of a panel: text without markup for Plotly, and positions on the x axis. Pure. */
import { makeVisible } from '../lib/text/visible.js';

/** @typedef {import('./figure.js').Series} Series */
/** @typedef {import('./figure.js').Unit} Unit */

/** Escapes a text so that Plotly shows it unchanged. @param {unknown} text */
export const escapeMarkup = (text) =>
  makeVisible(String(text))
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('%{', '%\u200b{');

/** Reverts `escapeMarkup`, for elements of the page that do not interpret markup. @param {string} text */
export const unescapeMarkup = (text) =>
  text.replaceAll('%\u200b{', '%{').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');

/**
 * Returns the x of a step of a line: that of its point, or of the last point before it.
 * @param {Series} series @param {number} step
 */
export function findXOfStep({ x, steps }, step) {
  const nextIndex = steps.findIndex((recordedStep) => recordedStep > step);
  return x[nextIndex < 0 ? steps.length - 1 : nextIndex - 1];
}

/** Recorded x by scaled list. @type {WeakMap<(number | null)[], (number | null)[]>} */
const originalByScaled = new WeakMap();

/** @param {(number | null)[]} x @param {Unit} unit */
export function scaleX(x, { size }) {
  if (size === 1) return x;
  const scaledX = x.map((value) => (value === null ? null : value / size));
  originalByScaled.set(scaledX, x);
  return scaledX;
}

/**
 * Returns the recorded x for a value of `scaleX`. The product of the value and the size is often slightly smaller, so
 * that a reading there would find the previous point.
 * @param {(number | null)[] | undefined} scaledX @param {number} value @param {Unit} unit @returns {number}
 */
export function unscaleX(scaledX, value, { size }) {
  const original = scaledX && originalByScaled.get(scaledX)?.[scaledX.lastIndexOf(value)];
  return original ?? value * size;
}
