/** The completion of queries and the position of errors in them. Pure. The service itself parses the language. */

/** @typedef {Api.QueryField} Field */
/** @typedef {{text: string, hint: string}} Option */
/** @typedef {{from: number, to: number, options: Option[]}} Completion `options` can replace [from, to) */
/** @typedef {{text: string, start: number, end: number}} Token */

const TOKEN = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|<=|>=|!=|!~|==|[=<>~(),]|(?:[^\s()=<>!~,"']|!(?![=~]))+/g;
const OPERATOR = /^(<=|>=|!=|!~|==|[=<>~])$/;
const MAX_OPTIONS = 12;

/** @type {Record<Field['type'], string[]>} */
const OPERATORS = {
  text: ['=', '!=', '~', '!~', 'in'],
  tags: ['=', '!=', '~', '!~', 'in'],
  number: ['=', '!=', '<', '<=', '>', '>=', 'in'],
  metric: ['>', '>=', '<', '<=', '=', '!=', 'in'],
  date: ['>', '>=', '<', '<=', '=', 'in'],
  config: ['=', '!=', '<', '<=', '>', '>=', '~', 'in'],
};
const CONJUNCTIONS = ['and', 'or'];
const FUNCTIONS = ['best', 'last'];

/** @param {string} text @returns {Token[]} */
const tokenize = (text) =>
  [...text.matchAll(TOKEN)].map(({ 0: word, index }) => ({ text: word, start: index, end: index + word.length }));

const unquote = (/** @type {string} */ text) =>
  /^["']/.test(text) ? text.replace(/^["']|["']$/g, '').replace(/\\(.)/g, '$1') : text;

/** Returns a value as it must be written in a query. @param {string} value */
export const spellValue = (value) =>
  /^[^\s()=<>!~,"'\\]+$/.test(value) && !/^(and|or|not|in|none)$/i.test(value)
    ? value
    : `"${value.replace(/[\\"]/g, '\\$&')}"`;

/**
 * The next expected part of the grammar.
 * @typedef {'operand' | 'operator' | 'value' | 'list' | 'item' | 'after item' | 'joint' | 'call' | 'metric'} Position
 */

/**
 * The transitions of the grammar for the next token.
 * @type {Record<Position, (word: string, field: string) => [Position, string]>}
 */
const NEXT = {
  operand: (word) =>
    word === 'not' || word === '(' ? ['operand', ''] : FUNCTIONS.includes(word) ? ['call', word] : ['operator', word],
  call: (word, field) => (word === '(' ? ['metric', ''] : NEXT.operator(word, field)),
  metric: (word, field) => (word === ')' ? ['operator', field] : ['metric', word]),
  operator: (word, field) => {
    if (OPERATOR.test(word)) return ['value', field];
    if (word === 'in') return ['list', field];
    if (word === 'not') return ['operator', field];
    return word === ')' ? ['joint', ''] : NEXT.joint(word, field);
  },
  value: () => ['joint', ''],
  list: (_, field) => ['item', field],
  item: (_, field) => ['after item', field],
  'after item': (word, field) => (word === ',' ? ['item', field] : ['joint', '']),
  joint: (word, field) =>
    word === ')' ? ['joint', ''] : CONJUNCTIONS.includes(word) ? ['operand', ''] : NEXT.operand(word, field),
};

/**
 * Returns the possible texts at the caret.
 * @param {string} text @param {number} caret @param {Field[]} fields @returns {Completion}
 */
export function findCompletion(text, caret, fields) {
  const tokens = tokenize(text.slice(0, caret));
  const last = tokens.at(-1);
  const isTyped = last !== undefined && last.end === caret && !/^[(),]$/.test(last.text) && !OPERATOR.test(last.text);
  const typedToken = isTyped ? last : { text: '', start: caret, end: caret };
  /** @type {[Position, string]} */
  let state = ['operand', ''];
  for (const { text: word } of isTyped ? tokens.slice(0, -1) : tokens)
    state = NEXT[state[0]](
      /^["']/.test(word) ? word : Object.hasOwn(NEXT_WORDS, word.toLowerCase()) ? word.toLowerCase() : word,
      state[1],
    );
  const [position, name] = state;
  const field = fields.find(
    (candidate) => candidate.name === unquote(name) || candidate.name === `config.${unquote(name)}`,
  );
  const options = filterOptions(listOptions(position, field, fields), unquote(typedToken.text));
  return { from: typedToken.start, to: typedToken.end, options };
}

const NEXT_WORDS = { and: 1, or: 1, not: 1, in: 1, best: 1, last: 1 };

/** @param {Position} position @param {Field | undefined} field @param {Field[]} fields @returns {Option[]} */
function listOptions(position, field, fields) {
  const offerFields = (/** @type {Field[]} */ offeredFields) =>
    offeredFields.map(({ name, type }) => ({ text: spellValue(name), hint: HINTS[type] }));
  const offerTexts = (/** @type {string[]} */ texts) => texts.map((text) => ({ text, hint: '' }));
  switch (position) {
    case 'operand':
      return [...offerFields(fields), ...offerTexts(['not', 'best(', 'last('])];
    case 'metric':
      return offerFields(fields.filter(({ type }) => type === 'metric'));
    case 'operator':
    case 'call':
      return offerTexts([...(field ? OPERATORS[field.type] : []), ...CONJUNCTIONS]);
    case 'value':
    case 'item':
      return offerTexts([
        ...(field?.values ?? []).map(spellValue),
        ...(field?.type === 'date' ? ['-1d', '-7d', '-30d'] : []),
      ]);
    case 'list':
      return offerTexts(['(']);
    case 'after item':
      return offerTexts([',', ')']);
    default:
      return offerTexts(CONJUNCTIONS);
  }
}

/** @type {Record<Field['type'], string>} */
const HINTS = { text: '', number: 'number', date: 'date', tags: '', config: '', metric: 'last value' };

/**
 * Returns options that begin with the typed text, then options that contain it.
 * @param {Option[]} options @param {string} typedText
 */
function filterOptions(options, typedText) {
  const word = typedText.toLowerCase();
  const rank = (/** @type {Option} */ { text }) => {
    const name = unquote(text).toLowerCase();
    const end = name.slice(name.lastIndexOf('.') + 1);
    return name === word ? -1 : name.startsWith(word) ? 0 : end.startsWith(word) ? 1 : name.includes(word) ? 2 : 3;
  };
  const rankedOptions = options.map((option) => ({ option, rank: rank(option) })).filter(({ rank }) => rank < 3);
  if (word && rankedOptions[0] && rankedOptions.length === 1 && rankedOptions[0].rank === -1) return [];
  return rankedOptions
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MAX_OPTIONS)
    .map(({ option }) => option);
}

/**
 * Returns the query with a chosen option, and the position of the caret.
 * @param {string} text @param {Completion} completion @param {Option} option
 */
export function applyCompletion(text, { from, to }, option) {
  const space = option.text.endsWith('(') || /^\s/.test(text.slice(to)) ? '' : ' ';
  return {
    text: text.slice(0, from) + option.text + space + text.slice(to),
    caret: from + option.text.length + space.length,
  };
}

const BEFORE_CARET = 40;
const AFTER_CARET = 40;

/**
 * Returns the part of a query around an error, with a caret below the character.
 * @param {string} query @param {number} position in code points, as counted by the service
 */
export function markPosition(query, position) {
  const characters = [...query].map((character) => (/\s/.test(character) ? ' ' : character));
  const first = Math.max(0, position - BEFORE_CARET);
  const ellipsis = first ? '…' : '';
  const excerpt = characters.slice(first, position + AFTER_CARET).join('');
  return `${ellipsis}${excerpt}\n${' '.repeat(position - first + ellipsis.length)}^`;
}
