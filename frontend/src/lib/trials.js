/** Changes of a config as text that people edit: one `path: value` per line, values as JSON. */

/** @param {Record<string, unknown>} changes */
export const changesText = (changes) =>
  Object.entries(changes)
    .map(([path, value]) => `${path}: ${JSON.stringify(value)}`)
    .join('\n');

const WORD = /^[A-Za-z_][\w./-]*$/;

/**
 * The changes that a text says; a word needs no quotes. `error` names the first line that cannot be read.
 * @param {string} text @returns {{changes: Record<string, unknown>, error: string}}
 */
export function readChanges(text) {
  /** @type {Record<string, unknown>} */
  const changes = {};
  for (const [i, line] of text.split('\n').entries()) {
    if (!line.trim()) continue;
    const [, path, value] = line.match(/^\s*([^:\s]+)\s*:\s*(.+?)\s*$/) ?? [];
    const read = path ? readValue(value) : undefined;
    if (read === undefined)
      return { changes: {}, error: `line ${i + 1} is not “path: value”, such as optimizer.lr: 0.0001` };
    if (Object.hasOwn(changes, path)) return { changes: {}, error: `line ${i + 1} names ${path} again` };
    changes[path] = read;
  }
  return { changes, error: '' };
}

/** Undefined where the text is neither JSON nor a word. @param {string} text */
function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return WORD.test(text) ? text : undefined;
  }
}

/**
 * Errors of a plan by field: of an arm by its number, of anything else by its name.
 * @param {{path: string, message: string}[]} errors @returns {Map<string, string>}
 */
export function placedErrors(errors) {
  const placed = new Map();
  for (const { path, message } of errors) {
    const [, number, field = ''] = path.match(/^arms\.(\d+)(?:\.changes)?\.?(.*)$/) ?? [];
    const place = number ?? path.split('.')[0];
    const words = field ? `${field} ${message}` : message;
    placed.set(place, placed.has(place) ? `${placed.get(place)}; ${words}` : words);
  }
  return placed;
}
