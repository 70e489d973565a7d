/**
 * The properties of a pydantic JSON Schema that a form needs: fields, kinds, defaults and members of unions. Unions are
 * `oneOf` with a `discriminator`, whose property (`type` or `name`) is called the tag here.
 */
import { lookup } from '../lookup.js';

/** @typedef {Record<string, any>} Node a JSON Schema node */
/**
 * @typedef {'section'|'union'|'list'|'sections'|'numbers'|'choices'|'tuple'|'record'|'choice'|'boolean'|'number'|
 *   'text'|'dataset'|'pass_rates'|'constant'} Kind
 */
/** @typedef {{key: string, path: string, node: Node, kind: Kind, required: boolean}} Field */

/**
 * Returns the target of a `$ref`. Properties next to it (description, default) take precedence.
 * @param {Node} root
 * @param {Node} node
 * @returns {Node}
 */
export function resolveNode(root, node) {
  if (!node?.$ref) return node ?? {};
  const { $ref, ...beside } = node;
  return { ...resolveNode(root, root.$defs[$ref.slice('#/$defs/'.length)]), ...beside };
}

/** @param {Node} node a resolved node @returns {Kind} */
export function findKind(node) {
  if (node.oneOf && node.discriminator) return 'union';
  if (node.properties) return 'section';
  if (node.prefixItems) return 'tuple';
  if (node.items?.enum) return 'choices';
  if (node.type === 'array') return findListKind(node.items ?? {});
  if ('const' in node) return 'constant';
  if (node.enum) return 'choice';
  if (node.format === 'dataset' || node.format === 'pass_rates') return node.format;
  if (node.type === 'object') return 'record';
  if (node.type === 'boolean') return 'boolean';
  if (node.type === 'integer' || node.type === 'number') return 'number';
  return 'text';
}

/** Returns the kind of a list of union members, sections, numbers or others. @param {Node} items @returns {Kind} */
function findListKind(items) {
  if (items.$ref) return 'sections';
  return items.type === 'integer' || items.type === 'number' ? 'numbers' : 'list';
}

/** Returns whether items of a kind are fields themselves. @param {Kind} kind */
export const isList = (kind) => kind === 'list' || kind === 'sections';

/** Returns the name of the property that distinguishes the members of a union. @param {Node} node @returns {string} */
export const readTag = (node) => node.discriminator.propertyName;

/**
 * Returns the names of a union's members, in the order of the schema.
 * @param {Node} root @param {Node} node @returns {string[]}
 */
export const listMemberNames = (root, node) =>
  node.oneOf.map((/** @type {Node} */ member) => lookup(resolveNode(root, member).properties, readTag(node)).const);

/**
 * Returns the schema of one member of a union.
 * @param {Node} root
 * @param {Node} node
 * @param {string} name
 * @returns {Node | undefined}
 */
export const findMember = (root, node, name) =>
  node.oneOf
    .map((/** @type {Node} */ member) => resolveNode(root, member))
    .find((/** @type {Node} */ member) => lookup(member.properties, readTag(node)).const === name);

/**
 * Returns the schema of a value, which for a union is that of the value's member.
 * @param {Node} root @param {Node} node @param {any} value @returns {Node | undefined}
 */
export function findShape(root, node, value) {
  const resolvedNode = resolveNode(root, node);
  return findKind(resolvedNode) === 'union'
    ? findMember(root, resolvedNode, lookup(value, readTag(resolvedNode)))
    : resolvedNode;
}

/**
 * Returns the fields of a section, or of the union member of `value`, without tags.
 * @param {Node} root
 * @param {Node} node
 * @param {any} value
 * @param {string} path
 * @returns {Field[]}
 */
export function listFields(root, node, value, path) {
  const shape = findShape(root, node, value);
  if (!shape) return [];
  return Object.entries(shape.properties ?? {})
    .map(([key, inner]) => {
      const resolvedNode = resolveNode(root, inner);
      return {
        key,
        path: path ? `${path}.${key}` : key,
        node: resolvedNode,
        kind: findKind(resolvedNode),
        required: (shape.required ?? []).includes(key),
      };
    })
    .filter(({ kind }) => kind !== 'constant');
}

/**
 * Returns the field at a dotted path of a config, whose tags choose the members of unions.
 * @param {Node} root
 * @param {string} path
 * @param {any} config
 * @returns {Field | undefined}
 */
export function findField(root, path, config) {
  let [node, value, prefix] = [root, config, ''];
  /** @type {Field | undefined} */
  let field;
  for (const key of path.split('.')) {
    if (isList(findKind(resolveNode(root, node)))) {
      node = resolveNode(root, node).items;
      field = {
        key,
        path: prefix ? `${prefix}.${key}` : key,
        node: resolveNode(root, node),
        kind: findKind(resolveNode(root, node)),
        required: true,
      };
    } else {
      field = listFields(root, node, value, prefix).find((inner) => inner.key === key);
    }
    if (!field) return undefined;
    [node, value, prefix] = [field.node, lookup(value, key), field.path];
  }
  return field;
}

/**
 * Returns the initial value of a field: its default, or the defaults of its parts.
 * @param {Node} root
 * @param {Node} node
 * @returns {any}
 */
export function makeDefault(root, node) {
  const resolvedNode = resolveNode(root, node);
  if ('default' in resolvedNode) return resolvedNode.default;
  const kind = findKind(resolvedNode);
  if (kind === 'constant') return resolvedNode.const;
  if (kind === 'union') return makeMember(root, resolvedNode, listMemberNames(root, resolvedNode)[0]);
  if (kind === 'section') return makeSection(root, resolvedNode);
  return EMPTY[kind] ?? '';
}

/** Initial values of kinds for schemas without a default. @type {Partial<Record<Kind, unknown>>} */
const EMPTY = { list: [], sections: [], numbers: [], choices: [], tuple: [], record: {}, boolean: false };

/**
 * Returns a section with all its defaults.
 * @param {Node} root @param {Node | undefined} node @returns {Record<string, any>}
 */
export const makeSection = (root, node) =>
  Object.fromEntries(Object.entries(node?.properties ?? {}).map(([key, inner]) => [key, makeDefault(root, inner)]));

/** Returns a new member of a union with all its defaults. @param {Node} root @param {Node} node @param {string} name */
export const makeMember = (root, node, name) => makeSection(root, findMember(root, node, name));

/**
 * Returns a value with the defaults of omitted fields. Values that match no member stay unchanged, and the server
 * reports the errors.
 * @param {Node} root @param {Node} node @param {any} value @returns {any}
 */
export function complete(root, node, value) {
  const resolvedNode = resolveNode(root, node);
  if (isList(findKind(resolvedNode)))
    return Array.isArray(value) ? value.map((item) => complete(root, resolvedNode.items, item)) : value;
  if (!isRecord(value)) return value;
  const shape = findShape(root, resolvedNode, value);
  if (!shape?.properties) return value;
  const missingKeys = Object.keys(shape.properties).filter((key) => !Object.hasOwn(value, key));
  return {
    ...Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [
        key,
        Object.hasOwn(shape.properties, key) ? complete(root, lookup(shape.properties, key), inner) : inner,
      ]),
    ),
    ...Object.fromEntries(missingKeys.map((key) => [key, makeDefault(root, lookup(shape.properties, key))])),
  };
}

/** @param {unknown} value @returns {value is Record<string, any>} */
export const isRecord = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** Returns the allowed values in words: `0 to 1`, `above 0`, `at least 1`. @param {Node} node */
export function rangeText(node) {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = node;
  const low =
    minimum !== undefined ? ['at least', minimum] : exclusiveMinimum !== undefined ? ['above', exclusiveMinimum] : null;
  const high =
    maximum !== undefined ? ['at most', maximum] : exclusiveMaximum !== undefined ? ['below', exclusiveMaximum] : null;
  if (minimum !== undefined && maximum !== undefined) return `${spellNumber(minimum)} to ${spellNumber(maximum)}`;
  return [low, high]
    .filter((side) => side !== null)
    .map(([word, edge]) => `${word} ${spellNumber(edge)}`)
    .join(', ');
}

/** Returns a limit as text, with large powers of two and ten written as powers. */
function spellNumber(/** @type {number} */ value) {
  const size = Math.abs(value);
  if (size < 1e5) return String(value);
  const twos = Math.log2(size);
  if (Number.isInteger(twos)) return `2^${twos}`;
  const tens = Math.log10(size);
  return Number.isInteger(tens) ? `1e${tens}` : String(value);
}

/**
 * Returns the JSON value of a typed text. An invalid number stays text, which the server rejects.
 * @param {Node} node
 * @param {string} typedText
 */
export function readTyped(node, typedText) {
  const kind = findKind(node);
  const kinds = (node.anyOf ?? node.oneOf ?? []).map((/** @type {Node} */ { type, $ref }) => ($ref ? 'object' : type));
  const takesNumber =
    kind === 'number' || kinds.some((/** @type {string} */ type) => type === 'integer' || type === 'number');
  const trimmedText = typedText.trim();
  if (kind === 'numbers') return readNumbers(trimmedText);
  if (takesNumber && trimmedText !== '' && Number.isFinite(Number(trimmedText))) return Number(trimmedText);
  if (kind === 'record' || (kinds.includes('object') && trimmedText.startsWith('{'))) return readJson(typedText);
  return typedText;
}

/**
 * Returns numbers separated by commas. Invalid numbers stay text, which the server rejects.
 * @param {string} typedText
 */
const readNumbers = (typedText) =>
  typedText
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean)
    .map((item) => (Number.isFinite(Number(item)) ? Number(item) : item));

function readJson(/** @type {string} */ typedText) {
  if (typedText.trim() === '') return {};
  try {
    return JSON.parse(typedText);
  } catch {
    return typedText;
  }
}

/** Returns a value as the text of its field. @param {any} value */
export function writeTyped(value) {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value) && value.every((item) => typeof item !== 'object')) return value.join(', ');
  if (typeof value === 'object') return Object.keys(value).length ? JSON.stringify(value) : '';
  return typeof value === 'number' && Math.abs(value) < 1e-3 && value !== 0
    ? value.toExponential().replace('e+', 'e')
    : String(value);
}
