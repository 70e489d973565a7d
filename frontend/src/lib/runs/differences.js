/** Config fields that differ between groups of runs, the meaning of the differences, and the equal fields. Pure. */
import { flatten, formatField, groupDifferences } from './config.js';

/**
 * `names`: the groups with these values; `config`: that of one of their runs.
 * @typedef {{names: string[], config: any, cells: unknown[][]}} Column
 * @typedef {{label: string, texts: string[]}} Row a text for each column
 */

/**
 * Returns the fields that differ, except the seed, and a column for each distinct set of their values. Fields that only
 * some configs have come last, because they follow from the choice of another field.
 * @param {import('./groups.js').Group[]} groups @returns {{paths: string[], columns: Column[]}}
 */
export function makeConfigColumns(groups) {
  const differences = groupDifferences(
    groups.map(({ name, runs }) => ({ name, configs: runs.map(({ config }) => config ?? {}) })),
  );
  const isPartial = (/** @type {{cells: unknown[][]}} */ { cells }) => cells.flat().includes(undefined);
  const fields = [...differences.filter((field) => !isPartial(field)), ...differences.filter(isPartial)];
  /** @type {Map<string, Column>} */
  const columns = new Map();
  groups.forEach(({ name, runs }, i) => {
    const cells = fields.map(({ cells: row }) => row[i]);
    const key = JSON.stringify(cells.map((values) => values.map((value) => (value === undefined ? [] : [value]))));
    const column = columns.get(key) ?? { names: [], config: runs[0].config, cells };
    column.names.push(name);
    columns.set(key, column);
  });
  return { paths: fields.map(({ path }) => path), columns: [...columns.values()] };
}

/** @param {string[]} paths @param {Column[]} columns @returns {Row[]} */
export const makeFieldRows = (paths, columns) =>
  paths.map((label, i) => ({ label, texts: columns.map(({ cells }) => cells[i].map(formatField).join(' | ')) }));

/** Returns the equal fields with their values. @param {any} config @param {string[]} different paths */
export const findSameFields = (config, different) =>
  Object.entries(flatten(config ?? {}))
    .filter(([path]) => path !== 'seed' && !different.includes(path))
    .map(([path, value]) => ({ path, text: formatField(value) }));

/**
 * Returns the differing explanations by the service: the loss, the symbols (maps, weights, penalties) and the notes.
 * Null stands for a config without explanation.
 * @param {(Pick<Api.Validated, 'formula' | 'formula_legend' | 'formula_notes'> | null)[]} validations by column
 * @returns {Row[]}
 */
export function makeMeaningRows(validations) {
  const texts = validations.map((validation) => {
    const meanings = (validation?.formula_legend ?? []).map(
      ({ symbol, meaning }) => /** @type {const} */ ([symbol, meaning]),
    );
    const notes = (validation?.formula_notes ?? []).map((note) => /** @type {const} */ ([note, 'yes']));
    return new Map([['loss', validation?.formula ?? '–'], ...meanings, ...notes]);
  });
  const labels = [...new Set(texts.flatMap((map) => [...map.keys()]))];
  return labels
    .map((label) => ({ label, texts: texts.map((map) => map.get(label) ?? '–') }))
    .filter((row) => new Set(row.texts).size > 1);
}

/** Returns a table in Markdown, in which no text can end its cell. @param {string[]} heads @param {Row[]} rows */
export function toMarkdown(heads, rows) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.map(makeCell).join(' | ')} |`;
  return [
    line(['field', ...heads]),
    line(['---', ...heads.map(() => '---')]),
    ...rows.map(({ label, texts }) => line([label, ...texts])),
    '',
  ].join('\n');
}

const makeCell = (/** @type {string} */ text) =>
  text
    .replace(/[\\|`*_<>[\]]/g, (sign) => `\\${sign}`)
    .replace(/\s+/g, ' ')
    .trim();
