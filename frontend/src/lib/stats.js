/** Mean and its uncertainty over a handful of seeds. */

/** Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom. */
const T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042];

const t95 = (freedom) => (freedom <= 30 ? T95[freedom - 1] : 1.96 + 2.4 / freedom);

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
  return { delta, half: t95(Math.max(1, Math.floor(freedom))) * Math.sqrt(va + vb) };
}
