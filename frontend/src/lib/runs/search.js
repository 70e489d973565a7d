/** The values of a search's configurations as a picture. Pure. */

/** @typedef {{x: number, y: number, trial: Api.SearchTrialItem}} Dot */

/**
 * Places of the configurations that have a value, and the path of the best so far.
 * @param {Api.SearchTrialItem[]} trials @param {{width: number, height: number, edge: number}} plot
 * @returns {{dots: Dot[], line: string, low: number | null, high: number | null}}
 */
export function bestLine(trials, { width, height, edge }) {
  const values = trials.flatMap(({ value }) => (value === null ? [] : [value]));
  if (!values.length) return { dots: [], line: '', low: null, high: null };
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const x = (/** @type {number} */ place) => edge + (place / Math.max(1, trials.length - 1)) * (width - 2 * edge);
  const y = (/** @type {number} */ value) => height - edge - ((value - low) / span) * (height - 2 * edge);
  const dots = trials.flatMap((trial, place) =>
    trial.value === null ? [] : [{ x: x(place), y: y(trial.value), trial }],
  );
  const line = trials
    .map(({ best }, place) => ({ best, place }))
    .filter(({ best }) => best !== null)
    .map(({ best, place }, i) =>
      i
        ? `H${x(place).toFixed(1)}V${y(Number(best)).toFixed(1)}`
        : `M${x(place).toFixed(1)},${y(Number(best)).toFixed(1)}`,
    )
    .join('');
  return { dots, line, low, high };
}
