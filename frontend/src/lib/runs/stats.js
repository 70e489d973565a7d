/** The mean of a few seeds and its uncertainty. */

/** 97.5 % quantiles of Student's t for 1..30 degrees of freedom. */
const T95 = [
  12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281, 2.201, 2.1788, 2.1604, 2.1448, 2.1314,
  2.1199, 2.1098, 2.1009, 2.093, 2.086, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

const Z95 = 1.959964;

/**
 * Returns the 97.5 % quantile of Student's t, with an expansion beyond the table.
 * @param {number} freedom whole, at least 1
 */
export const t95 = (freedom) => T95[freedom - 1] ?? Z95 + (Z95 ** 3 + Z95) / (4 * freedom);

/** @typedef {{n: number, mean: number | null, std: number | null, half: number | null}} Spread */

/**
 * Returns the mean, the sample standard deviation and the half width of the 95 % interval of the mean (Student's t). A
 * single value has no spread, and without values all are null.
 * @param {number[]} values finite @returns {Spread}
 */
export function computeSpread(values) {
  const n = values.length;
  if (!n) return { n, mean: null, std: null, half: null };
  const mean = values.reduce((sum, v) => sum + v, 0) / n;
  if (n === 1) return { n, mean, std: null, half: null };
  const std = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (n - 1));
  return { n, mean, std, half: (t95(n - 1) * std) / Math.sqrt(n) };
}
