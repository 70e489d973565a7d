/** Variants of a sweep as a grid of cells: the mean of a metric over seeds by the two fields that differ. Pure. */
import { groupDifferences } from './config.js';
import { computeSpread } from './stats.js';
import { lookup } from '../lookup.js';

/** @typedef {import('./groups.js').Group} Group */
/** @typedef {{group: Group, mean: number | null, n: number, heat: number | null}} Cell `heat`: from 0, worst, to 1 */
/** @typedef {{path: string, values: unknown[]}} Axis */
/** @typedef {{rows: Axis, columns: Axis, cells: (Cell | undefined)[][]}} Grid */

/** Returns a metric's last value in a run, if it is a number. @param {Api.RunItem} run @param {string} metric */
const readLast = (run, metric) => {
  const value = lookup(run.summary?.last, metric);
  return typeof value === 'number' ? value : undefined;
};

/**
 * Returns a cell for each group: the mean over the seeds with a value, and its position between the extremes.
 * @param {Group[]} groups @param {string} metric @param {string | null | undefined} betterDirection `up` or `down`
 * @returns {Cell[]}
 */
export function makeCells(groups, metric, betterDirection) {
  const spreads = groups.map(({ runs }) =>
    computeSpread(runs.map((run) => readLast(run, metric)).filter((value) => value !== undefined)),
  );
  const means = spreads.flatMap(({ mean }) => (mean === null ? [] : [mean]));
  const [low, high] = [Math.min(...means), Math.max(...means)];
  return groups.map((group, i) => {
    const { mean, n } = spreads[i];
    const share = mean === null || high === low ? null : (mean - low) / (high - low);
    return { group, mean, n, heat: share !== null && betterDirection === 'down' ? 1 - share : share };
  });
}

/** @param {unknown} a @param {unknown} b */
const compareValues = (a, b) =>
  typeof a === 'number' && typeof b === 'number' ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;

const spell = (/** @type {unknown} */ value) => JSON.stringify(value) ?? 'undefined';

/** Returns the distinct values in order. @param {unknown[]} values */
const listValues = (values) => [...new Map(values.map((value) => [spell(value), value])).values()].sort(compareValues);

/**
 * Returns the differing fields, except those of only some union members if the member itself differs.
 * @template {{path: string, cells: unknown[][]}} Field
 * @param {Field[]} fields
 */
function withoutMembers(fields) {
  const unions = fields.filter(({ path }) => path.endsWith('.type')).map(({ path }) => path.slice(0, -'type'.length));
  return fields.filter(
    ({ path, cells }) =>
      !cells.some((values) => values.includes(undefined)) || !unions.some((union) => path.startsWith(union)),
  );
}

/**
 * Returns the cells as a grid if two fields distinguish them, else null.
 * @param {Cell[]} cells @returns {Grid | null}
 */
export function makeGrid(cells) {
  const differingFields = withoutMembers(
    groupDifferences(
      cells.map(({ group: { name, runs } }) => ({ name, configs: runs.map(({ config }) => config ?? {}) })),
    ),
  );
  const listCellValues = (/** @type {number} */ i) => differingFields.map((field) => field.cells[i][0]);
  const keys = new Set(cells.map((_, i) => spell(listCellValues(i))));
  if (differingFields.length !== 2 || keys.size !== cells.length) return null;
  const axes = differingFields.map(({ path }, index) => ({
    path,
    values: listValues(cells.map((_, i) => listCellValues(i)[index])),
  }));
  const isTall = axes[0].values.length >= axes[1].values.length;
  const [rows, columns] = isTall ? axes : [axes[1], axes[0]];
  const isGrid = rows.values.length > 1 && columns.values.length > 1 && rows.values.length < cells.length;
  if (!isGrid) return null;
  const cellOfValues = new Map(
    cells.map((cell, i) => [spell(isTall ? listCellValues(i) : listCellValues(i).reverse()), cell]),
  );
  return {
    rows,
    columns,
    cells: rows.values.map((row) => columns.values.map((column) => cellOfValues.get(spell([row, column])))),
  };
}
