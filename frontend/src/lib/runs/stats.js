/** Mean and its uncertainty over a handful of seeds. */

/** 97.5 % quantiles of Student's t for 1..30 degrees of freedom. */
const T95 = [
  12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281, 2.201, 2.1788, 2.1604, 2.1448, 2.1314,
  2.1199, 2.1098, 2.1009, 2.093, 2.086, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

const Z95 = 1.959964;

/**
 * 97.5 % quantile of Student's t; linear in 1/freedom between two entries, by its expansion beyond the table.
 * @param {number} freedom
 */
export function t95(freedom) {
  if (freedom > 30) return Z95 + (Z95 ** 3 + Z95) / (4 * freedom);
  const low = Math.max(1, Math.floor(freedom));
  const inside = Math.max(low, freedom);
  if (inside === low) return T95[low - 1];
  const share = (1 / low - 1 / inside) / (1 / low - 1 / (low + 1));
  return T95[low - 1] + share * ((T95[low] ?? Z95 + (Z95 ** 3 + Z95) / (4 * (low + 1))) - T95[low - 1]);
}

/** @typedef {{n: number, mean: number | null, std: number | null, half: number | null}} Spread */

/**
 * Mean, sample standard deviation and half width of the 95 % interval of the mean (Student's t).
 * One value has a mean and no spread; none has neither.
 * @param {number[]} values finite @returns {Spread}
 */
export function spread(values) {
  const n = values.length;
  if (!n) return { n, mean: null, std: null, half: null };
  const mean = values.reduce((sum, v) => sum + v, 0) / n;
  if (n === 1) return { n, mean, std: null, half: null };
  const std = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (n - 1));
  return { n, mean, std, half: (t95(n - 1) * std) / Math.sqrt(n) };
}

/**
 * Difference of two means with the half width of its 95 % interval (Welch). `half` is null where either side has
 * fewer than two values: then no claim can be made.
 * @param {number[]} values @param {number[]} baseline @returns {{delta: number | null, half: number | null}}
 */
export function difference(values, baseline) {
  const [a, b] = [spread(values), spread(baseline)];
  if (a.mean === null || b.mean === null) return { delta: null, half: null };
  const delta = a.mean - b.mean;
  if (a.std === null || b.std === null) return { delta, half: null };
  const [va, vb] = [a.std ** 2 / a.n, b.std ** 2 / b.n];
  if (va + vb === 0) return { delta, half: 0 };
  const freedom = (va + vb) ** 2 / (va ** 2 / (a.n - 1) + vb ** 2 / (b.n - 1));
  return { delta, half: t95(Math.max(1, freedom)) * Math.sqrt(va + vb) };
}
