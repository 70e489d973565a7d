/** Writes JSON values as YAML 1.2 for every YAML reader. This module does not read YAML. */

const PLAIN = /^[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|\.nan|\.inf)$/i;

/** @param {unknown} value @returns {string} ends with a newline */
export function toYaml(value) {
  if (isBranch(value)) return makeLines(value, '').join('\n') + '\n';
  return `${formatScalar(value)}\n`;
}

/** @param {unknown} value @returns {value is object} */
const isBranch = (value) => value !== null && typeof value === 'object' && Object.keys(value).length > 0;

/** @param {object} value @param {string} indent @returns {string[]} */
function makeLines(value, indent) {
  if (Array.isArray(value)) return value.flatMap((item) => makeItemLines(item, indent));
  return Object.entries(value).flatMap(([key, inner]) => makeEntryLines(key, inner, indent));
}

/** @param {string} key @param {unknown} value @param {string} indent @returns {string[]} */
function makeEntryLines(key, value, indent) {
  if (!isBranch(value)) return [`${indent}${formatText(key)}: ${formatScalar(value)}`];
  if (Array.isArray(value) && value.every((item) => !isBranch(item)))
    return [`${indent}${formatText(key)}: [${value.map(formatScalar).join(', ')}]`];
  return [`${indent}${formatText(key)}:`, ...makeLines(value, `${indent}  `)];
}

/** @param {unknown} item @param {string} indent @returns {string[]} */
function makeItemLines(item, indent) {
  if (!isBranch(item)) return [`${indent}- ${formatScalar(item)}`];
  // the first line of the item follows the dash
  const [firstLine, ...otherLines] = makeLines(item, `${indent}  `);
  return [`${indent}- ${firstLine.slice(indent.length + 2)}`, ...otherLines];
}

function formatScalar(/** @type {unknown} */ value) {
  if (value === null || value === undefined) return 'null';
  if (Array.isArray(value)) return '[]';
  if (typeof value === 'object') return '{}';
  if (typeof value === 'number') return formatNumber(value);
  return typeof value === 'string' ? formatText(value) : String(value);
}

/** Returns a number with a point and a sign in its exponent, because YAML 1.1 reads `1e-7` as text. */
function formatNumber(/** @type {number} */ value) {
  const [mantissa, exponent] = String(value).split('e');
  if (exponent === undefined) return mantissa;
  return `${mantissa.includes('.') ? mantissa : `${mantissa}.0`}e${/^[+-]/.test(exponent) ? exponent : `+${exponent}`}`;
}

const formatText = (/** @type {string} */ value) =>
  PLAIN.test(value) && !RESERVED.test(value)
    ? value
    : JSON.stringify(value).replace(/[\u007f-\u009f\u2028\u2029\ud800-\udfff\ufeff]/g, escapeUnit);

/** Returns a UTF-16 unit unchanged if it is part of a surrogate pair. JSON has already escaped lone halves. */
const escapeUnit = (/** @type {string} */ unit) =>
  /[\ud800-\udfff]/.test(unit) ? unit : `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
