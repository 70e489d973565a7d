/** The same prompt in columns: the steps and runs next to the group in view. */

/** @typedef {{run: string, step: number | null}} Column `run`: empty for the run in view; `step`: null for that in view */

/** Maximum number of columns next to the group in view. */
export const MAX_COLUMNS = 6;

/** Returns a column written as `run@step`, or null for other texts. @param {string} text @returns {Column | null} */
export function readColumn(text) {
  const match = /^([^@]{0,64})@(\d{0,9})$/.exec(text);
  if (!match || (!match[1] && !match[2])) return null;
  return { run: match[1], step: match[2] === '' ? null : Number(match[2]) };
}

/** @param {Column} column */
export const writeColumn = ({ run, step }) => `${run}@${step ?? ''}`;

/**
 * Returns the default columns: the first and the last other step of the prompt, then two other runs.
 * @param {number[]} steps of the prompt, ascending @param {number} step in view @param {string[]} runs other ones
 * @returns {Column[]}
 */
export function chooseUsualColumns(steps, step, runs) {
  const otherSteps = steps.filter((storedStep) => storedStep !== step);
  const ends = otherSteps.length > 1 ? [otherSteps[0], otherSteps[otherSteps.length - 1]] : otherSteps;
  return [...ends.map((end) => ({ run: '', step: end })), ...runs.slice(0, 2).map((run) => ({ run, step: null }))];
}
