/** A curve as an SVG path. Pure. */

/**
 * Returns the scales, range and path of a curve in a box, without values that are not finite.
 * @param {{steps: number[], values: number[]}} series
 * @param {{from: number, to: number, width: number, height: number}} box `from`, `to`: the steps at its sides
 */
export function makeCurve({ steps, values }, { from, to, width, height }) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const x = (/** @type {number} */ step) => ((step - from) / (to - from || 1)) * width;
  const y = (/** @type {number} */ value) => height - ((value - low) / (high - low || 1)) * height;
  const points = steps.flatMap((step, i) =>
    Number.isFinite(values[i]) ? [`${x(step).toFixed(1)} ${y(values[i]).toFixed(1)}`] : [],
  );
  return { low, high, x, y, path: points.length ? `M${points.join('L')}` : '' };
}
