/** Settings of a run in the form: the most frequently changed ones, the inactive ones, and a search. Pure. */
import { getAt } from './layers.js';
import { findField, listFields } from './schema.js';

/** @typedef {import('./schema.js').Node} Node */
/** @typedef {import('./schema.js').Field} Field */
/**
 * @typedef {Record<string, {path: string, values: string[]}>} Switches fields that have an effect only with these
 *   values
 */

/** Words for the fields that are changed most often, in the order of the form. @type {[string, string][]} */
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

/** Returns the words for a field. @param {string} path */
export const findWords = (path) => WORDS.get(path) ?? '';

/**
 * Returns whether a field has no effect, because its switch, or that of a section around it, has another value.
 * @param {Switches} switches @param {string} path @param {any} fullConfig
 */
export const isOff = (switches, path, fullConfig) =>
  Object.entries(switches).some(
    ([gated, gate]) => `${path}.`.startsWith(`${gated}.`) && !gate.values.includes(getAt(fullConfig, gate.path)),
  );

/**
 * Returns the paths at or below `paths` whose key, words or description contain every typed word, without parents of
 * matches.
 * @param {Node} root @param {any} fullConfig @param {string[]} paths @param {string} text @returns {string[]}
 */
export function findPaths(root, fullConfig, paths, text) {
  const typedWords = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {(field: Field) => string[]} */
  const matchField = (field) => {
    const { path, node, kind } = field;
    const isParted = kind === 'section' || kind === 'union';
    const words = `${path} ${findWords(path)} ${node.description ?? ''}`.toLowerCase();
    if (typedWords.every((word) => words.includes(word))) return [path];
    return isParted ? listFields(root, node, getAt(fullConfig, path), path).flatMap(matchField) : [];
  };
  return paths.flatMap((path) => {
    const field = findField(root, path, fullConfig);
    return field ? matchField(field) : [];
  });
}
