/** The settings of a run in the form: the ones changed most, which ones are off, and the search among them. Pure. */
import { getAt } from './layers.js';
import { fieldAt, fieldsOf } from './schema.js';

/** @typedef {import('./schema.js').Node} Node */
/** @typedef {import('./schema.js').Field} Field */
/** @typedef {Record<string, {path: string, values: string[]}>} Switches fields that work only with these values */

/** Words for the fields that people change most, in the order in which the form shows them. @type {[string, string][]} */
export const ESSENTIALS = [
  ['optimizer.lr', 'Learning rate'],
  ['sampling.group_size', 'Group size'],
  ['sampling.prompts_per_step', 'Prompts a step'],
  ['sampling.max_new_tokens', 'Max new tokens'],
  ['objective.kl.type', 'KL penalty'],
  ['objective.kl.coef', 'KL coefficient'],
  ['steps', 'Steps'],
];

const WORDS = new Map(ESSENTIALS);

/** What a field is called apart from its key. @param {string} path */
export const wordsOf = (path) => WORDS.get(path) ?? '';

/**
 * Whether a field does nothing, because its switch, or that of a section around it, stands otherwise.
 * @param {Switches} switches @param {string} path @param {any} full
 */
export const isOff = (switches, path, full) =>
  Object.entries(switches).some(
    ([gated, gate]) => `${path}.`.startsWith(`${gated}.`) && !gate.values.includes(getAt(full, gate.path)),
  );

/**
 * Paths at or below `paths` whose key, words or description hold every typed word; what holds a match is not repeated.
 * @param {Node} root @param {any} full @param {string[]} paths @param {string} text @returns {string[]}
 */
export function pathsMatching(root, full, paths, text) {
  const typed = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {(field: Field) => string[]} */
  const inField = (field) => {
    const { path, node, kind } = field;
    const isParted = kind === 'section' || kind === 'union';
    const words = `${path} ${wordsOf(path)} ${node.description ?? ''}`.toLowerCase();
    if (typed.every((word) => words.includes(word))) return [path];
    return isParted ? fieldsOf(root, node, getAt(full, path), path).flatMap(inField) : [];
  };
  return paths.flatMap((path) => {
    const field = fieldAt(root, path, full);
    return field ? inField(field) : [];
  });
}
