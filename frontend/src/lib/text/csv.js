/** Writes a table as CSV (RFC 4180). Text that a spreadsheet would run as a formula gets a leading apostrophe. */

const FORMULA = /^[=+\-@\t\r\n\0＝＋－＠]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^-Infinity$/i;

/** @param {unknown} cell */
export function csvCell(cell) {
  if (cell === null || cell === undefined) return '';
  if (typeof cell === 'number') return String(cell);
  const text = Array.isArray(cell) ? cell.join(' ') : String(cell);
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",;\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {string[]} head @param {unknown[][]} rows */
export const writeCsv = (head, rows) => [head, ...rows].map((row) => row.map(csvCell).join(',')).join('\n') + '\n';
