/** The values of a search's configurations as a chart. Pure. */

/** @typedef {{x: number, y: number, trial: Api.SearchTrialItem}} Dot */

/**
 * Returns the dots of the configurations with a value, and the path of the best value so far.
 * @param {Api.SearchTrialItem[]} trials @param {{width: number, height: number, edge: number}} plot
 * @returns {{dots: Dot[], line: string, low: number | null, high: number | null}}
 */
export function makeBestLine(trials, { width, height, edge }) {
  const values = trials.flatMap(({ value }) => (value === null ? [] : [value]));
  if (!values.length) return { dots: [], line: '', low: null, high: null };
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const toX = (/** @type {number} */ index) => edge + (index / Math.max(1, trials.length - 1)) * (width - 2 * edge);
  const toY = (/** @type {number} */ value) => height - edge - ((value - low) / span) * (height - 2 * edge);
  const dots = trials.flatMap((trial, index) =>
    trial.value === null ? [] : [{ x: toX(index), y: toY(trial.value), trial }],
  );
  const line = trials
    .map(({ best }, index) => ({ best, index }))
    .filter(({ best }) => best !== null)
    .map(({ best, index }, i) =>
      i
        ? `H${toX(index).toFixed(1)}V${toY(Number(best)).toFixed(1)}`
        : `M${toX(index).toFixed(1)},${toY(Number(best)).toFixed(1)}`,
    )
    .join('');
  return { dots, line, low, high };
}
