/** The completion of queries and the position of errors in them. Pure. The service itself parses the language. */

/** @typedef {Api.QueryField} Field */
/** @typedef {{text: string, hint: string}} Option */
/** @typedef {{from: number, to: number, options: Option[]}} Completion `options` can replace [from, to) */
/** @typedef {{text: string, at: number, end: number}} Token */

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
const tokensOf = (text) =>
  [...text.matchAll(TOKEN)].map(({ 0: word, index }) => ({ text: word, at: index, end: index + word.length }));

const unquoted = (/** @type {string} */ text) =>
  /^["']/.test(text) ? text.replace(/^["']|["']$/g, '').replace(/\\(.)/g, '$1') : text;

/** Returns a value as it must be written in a query. @param {string} value */
export const spelled = (value) =>
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
export function completionAt(text, caret, fields) {
  const tokens = tokensOf(text.slice(0, caret));
  const last = tokens.at(-1);
  const isTyped = last !== undefined && last.end === caret && !/^[(),]$/.test(last.text) && !OPERATOR.test(last.text);
  const typed = isTyped ? last : { text: '', at: caret, end: caret };
  /** @type {[Position, string]} */
  let state = ['operand', ''];
  for (const { text: word } of isTyped ? tokens.slice(0, -1) : tokens)
    state = NEXT[state[0]](
      /^["']/.test(word) ? word : Object.hasOwn(NEXT_WORDS, word.toLowerCase()) ? word.toLowerCase() : word,
      state[1],
    );
  const [position, name] = state;
  const field = fields.find(
    (candidate) => candidate.name === unquoted(name) || candidate.name === `config.${unquoted(name)}`,
  );
  const options = matching(optionsAt(position, field, fields), unquoted(typed.text));
  return { from: typed.at, to: typed.end, options };
}

const NEXT_WORDS = { and: 1, or: 1, not: 1, in: 1, best: 1, last: 1 };

/** @param {Position} position @param {Field | undefined} field @param {Field[]} fields @returns {Option[]} */
function optionsAt(position, field, fields) {
  const named = (/** @type {Field[]} */ offeredFields) =>
    offeredFields.map(({ name, type }) => ({ text: spelled(name), hint: HINTS[type] }));
  const plain = (/** @type {string[]} */ texts) => texts.map((text) => ({ text, hint: '' }));
  switch (position) {
    case 'operand':
      return [...named(fields), ...plain(['not', 'best(', 'last('])];
    case 'metric':
      return named(fields.filter(({ type }) => type === 'metric'));
    case 'operator':
    case 'call':
      return plain([...(field ? OPERATORS[field.type] : []), ...CONJUNCTIONS]);
    case 'value':
    case 'item':
      return plain([...(field?.values ?? []).map(spelled), ...(field?.type === 'date' ? ['-1d', '-7d', '-30d'] : [])]);
    case 'list':
      return plain(['(']);
    case 'after item':
      return plain([',', ')']);
    default:
      return plain(CONJUNCTIONS);
  }
}

/** @type {Record<Field['type'], string>} */
const HINTS = { text: '', number: 'number', date: 'date', tags: '', config: '', metric: 'last value' };

/**
 * Returns options that begin with the typed text, then options that contain it.
 * @param {Option[]} options @param {string} typed
 */
function matching(options, typed) {
  const word = typed.toLowerCase();
  const rank = (/** @type {Option} */ { text }) => {
    const name = unquoted(text).toLowerCase();
    const end = name.slice(name.lastIndexOf('.') + 1);
    return name === word ? -1 : name.startsWith(word) ? 0 : end.startsWith(word) ? 1 : name.includes(word) ? 2 : 3;
  };
  const ranked = options.map((option) => ({ option, rank: rank(option) })).filter(({ rank }) => rank < 3);
  if (word && ranked[0] && ranked.length === 1 && ranked[0].rank === -1) return [];
  return ranked
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MAX_OPTIONS)
    .map(({ option }) => option);
}

/**
 * Returns the query with a chosen option, and the position of the caret.
 * @param {string} text @param {Completion} completion @param {Option} option
 */
export function completed(text, { from, to }, option) {
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
export function pointedAt(query, position) {
  const characters = [...query].map((character) => (/\s/.test(character) ? ' ' : character));
  const first = Math.max(0, position - BEFORE_CARET);
  const cut = first ? '…' : '';
  const excerpt = characters.slice(first, position + AFTER_CARET).join('');
  return `${cut}${excerpt}\n${' '.repeat(position - first + cut.length)}^`;
}
