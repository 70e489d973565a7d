/** A completion token by token, with colours by a value, the numbers of a token, and the sums of the loss. */
import { html, signal, useEffect, useMemo, useRef, useState } from '../../dom.js';
import { copyText } from '../../app/actions.js';
import {
  splitChunks,
  COLOURINGS,
  isSigned,
  chooseLevelClass,
  findLevel,
  LEVELS,
  probabilityText,
  spellToken,
  readValue,
  readValues,
} from '../../lib/text/tokens.js';
import { formatValue } from '../../lib/text/format.js';
import { Alternatives } from './alternatives.js';
import { MAX_SHOWN, ShowMore, Visible } from './text.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {Api.TokensResponse} Tokens */
/** @typedef {import('../../lib/text/tokens.js').ColourName} ColourName */

/** @typedef {{tokens: Tokens, tokenIndex: number, index: number, isPinned: boolean}} Pointed */
/**
 * The token under the pointer, anywhere on the page. A pinned token stays when the pointer leaves.
 * @type {import('../../../vendor/signals.js').Signal<Pointed | null>}
 */
const pointedToken = signal(null);

const KEYS = {
  ArrowRight: (/** @type {number} */ index) => index + 1,
  ArrowLeft: (/** @type {number} */ index) => index - 1,
  Home: () => 0,
  End: () => Infinity,
};

/**
 * The text of a completion token by token, rendered in chunks so that long texts stay fast. The arrow keys, Home and
 * End move through the tokens. A click or Enter pins a token, and Escape releases it.
 * @param {{tokens: Tokens, colourBy: ColourName, index: number, pinnedToken: number | null,
 *   onPin?: (at: number | null) => void}} props `index`: of the completion in its group; without `onPin` no token
 *   can be pinned
 */
export function TokenText({ tokens, colourBy, index, pinnedToken, onPin }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const currentToken = useRef(-1);
  const chunks = useMemo(() => splitChunks(tokens.tokens, MAX_SHOWN), [tokens]);
  const values = useMemo(() => readValues(tokens, colourBy), [tokens, colourBy]);
  const [count, setCount] = useState(1);
  const last = tokens.tokens.length - 1;
  const element = (/** @type {number} */ token) => box.current?.querySelector(`[data-token="${token}"]`);
  const point = (/** @type {number} */ token, keeps = false) => {
    currentToken.current = token;
    box.current?.querySelector('.is-at')?.classList.remove('is-at');
    element(token)?.classList.add('is-at');
    pointedToken.value = token < 0 ? null : { tokens, tokenIndex: token, index, isPinned: keeps };
  };
  const show = (/** @type {number} */ token) =>
    setCount((before) => Math.max(before, 1 + chunks.findIndex(([, end]) => token < end)));
  const leave = () => {
    if (pinnedToken === null) point(-1);
    else if (pinnedToken <= last) point(pinnedToken, true);
  };
  useEffect(
    () => () => {
      if (pointedToken.value?.tokens === tokens) pointedToken.value = null;
    },
    [tokens],
  );
  useEffect(() => {
    if (pinnedToken === null || pinnedToken > last) return;
    show(pinnedToken);
    requestAnimationFrame(() => {
      point(pinnedToken, true);
      element(pinnedToken)?.scrollIntoView({ block: 'nearest' });
    });
  }, [pinnedToken, tokens]);
  const findToken = (/** @type {Event} */ event) => {
    const token = event.target instanceof Element && event.target.closest('[data-token]');
    return token instanceof HTMLElement ? Number(token.dataset.token) : null;
  };
  const handleMouseOver = (/** @type {MouseEvent} */ event) => {
    const token = findToken(event);
    if (token !== null) point(token, token === pinnedToken);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = Object.hasOwn(KEYS, event.key) && KEYS[/** @type {keyof typeof KEYS} */ (event.key)];
    if (event.key === 'Enter' && onPin && currentToken.current >= 0) onPin(currentToken.current);
    else if (event.key === 'Escape' && onPin && pinnedToken !== null) onPin(null);
    else if (move) {
      const next = Math.min(last, Math.max(0, move(currentToken.current)));
      show(next);
      requestAnimationFrame(() => {
        point(next);
        element(next)?.scrollIntoView({ block: 'nearest' });
      });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div
    class=${`model-text is-coloured by-${colourBy}`}
    ref=${box}
    tabindex="0"
    role="group"
    aria-label=${`Completion ${index}; arrow keys move through the tokens${onPin ? ', Enter pins one' : ''}`}
    onMouseOver=${handleMouseOver}
    onMouseLeave=${leave}
    onClick=${(/** @type {MouseEvent} */ event) => {
      const token = findToken(event);
      if (token !== null) onPin?.(token === pinnedToken ? null : token);
    }}
    onKeyDown=${key}
    onBlur=${leave}
  >
    ${chunks
      .slice(0, count)
      .map(
        ([first, end]) =>
          html`<${Chunk} key=${first} tokens=${tokens} values=${values} colourBy=${colourBy} first=${first} end=${end} />`,
      )}
    ${
      count < chunks.length &&
      html`<${ShowMore} remainingBytes=${findLength(tokens.tokens, chunks[count][0])} onMore=${() => setCount(count + 1)} />`
    }
  </div>`;
}

/** Returns the number of characters from a token to the end. @param {string[]} tokens @param {number} first */
const findLength = (tokens, first) => tokens.slice(first).reduce((sum, token) => sum + token.length, 0);

/**
 * @param {{tokens: Tokens, values: (number | string)[] | undefined, colourBy: ColourName, first: number, end: number}}
 *   props
 */
function Chunk({ tokens, values, colourBy, first, end }) {
  return useMemo(
    () =>
      tokens.tokens.slice(first, end).map(
        (token, i) => html`<${Token}
          key=${i}
          token=${token}
          index=${first + i}
          level=${findLevel(colourBy, readValue(values, tokens.mask, first + i))}
          isObserved=${tokens.observed[first + i] === 1}
        />`,
      ),
    [tokens, values, colourBy, first, end],
  );
}

const BLANK_LINES = /^\s*\n\s*$/;

/** @param {{token: string, index: number, level: number | null, isObserved: boolean}} props */
function Token({ token, index, level, isObserved }) {
  const shape = `${BLANK_LINES.test(token) ? ' is-break' : ''}${isObserved ? ' is-observation' : ''}`;
  const look = `token ${chooseLevelClass(isObserved ? null : level)}${shape}`;
  return html`<span class=${look} data-token=${index}>
    <${Visible} text=${token} />
  </span>`;
}

const SIDES = new Map([
  [-1, 'below'],
  [1, 'above'],
  [2, 'by the dual cap'],
]);

/**
 * Returns the displayed values of a token by name.
 * @param {Tokens} tokens @param {number} index @returns {[string, string][]}
 */
function readTokenValues(tokens, index) {
  const names = Object.keys(tokens.arrays);
  const derivedNames = ['mismatch', ...('advantage' in tokens.arrays ? [] : ['advantage'])];
  const derivedValues = derivedNames.map((name) => [
    name,
    readValues(tokens, /** @type {ColourName} */ (name))?.[index],
  ]);
  return [...names.map((name) => [name, lookup(tokens.arrays, name)[index]]), ...derivedValues]
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [
      String(name),
      name === 'clipped' ? (SIDES.get(Number(value)) ?? 'no') : value === null ? 'n/a' : formatValue(value),
    ]);
}

/** The numbers of the token under the pointer. */
export function Readout() {
  if (!pointedToken.value) {
    return html`<p class="readout faint">Point at a token to see its values; click or tap it to pin them and get a link</p>`;
  }
  const { tokens, tokenIndex, index, isPinned } = pointedToken.value;
  const isObserved = tokens.observed[tokenIndex] === 1;
  const isMasked = isObserved || (tokens.mask && !tokens.mask[tokenIndex]);
  const logprob = readValue(tokens.arrays.logprob, tokens.mask, tokenIndex);
  const copy = () =>
    copyText(
      [
        ['token', JSON.stringify(tokens.tokens[tokenIndex])],
        ['id', String(tokens.token_ids[tokenIndex])],
        ...readTokenValues(tokens, tokenIndex),
      ]
        .map(([name, value]) => `${name}\t${value}`)
        .join('\n'),
      'Values',
    );
  return html`<p class="readout" role="status">
    <span class="faint">
      Completion ${index}, token ${tokenIndex + 1}
    </span>${' '}
    <bdi class="readout-token">${spellToken(tokens.tokens[tokenIndex])}</bdi>
    <span class="faint">id ${tokens.token_ids[tokenIndex]}</span>
    ${isMasked && html`<span>${isObserved ? 'observation of a tool' : 'masked'}: not part of the loss</span>`}
    ${!isObserved && typeof logprob === 'number' && html`<span>p ${probabilityText(logprob)}</span>`}
    ${
      !isMasked &&
      readTokenValues(tokens, tokenIndex).map(
        ([name, value]) => html`<span key=${name}>
          <span class="faint">${name.replaceAll('_', ' ')}</span>${' '}${value}
        </span>`,
      )
    }
    <${Alternatives} tokens=${tokens} index=${tokenIndex} />
    ${
      isPinned &&
      html`
        <button type="button" class="button-quiet" onClick=${copy}>Copy values</button>
        <button type="button" class="button-quiet" onClick=${() => copyText(location.href, 'Link')}>Copy link</button>
      `
    }
  </p>`;
}

/** The meaning of the colours. @param {{colourBy: ColourName}} props */
export function ColourLegend({ colourBy }) {
  const { label, unit, low, high } = COLOURINGS[colourBy];
  const first = isSigned(colourBy) ? -LEVELS : 0;
  return html`<span
    class=${`token-legend by-${colourBy}`}
    aria-label=${`Colours of ${label}${unit && ` in ${unit}`}: from ${low} to ${high}; masked tokens have none`}
    role="img"
  >
    <span>${low}</span>
    <span class="legend-scale">
      ${Array.from(
        { length: LEVELS - first + 1 },
        (_, i) => html`<span key=${i} class=${chooseLevelClass(first + i)}></span>`,
      )}
    </span>
    <span>${high}</span>
    <span class="faint">${unit}</span>
    <span class="token is-masked">n/a</span>
  </span>`;
}

/**
 * The loss of the completion under the pointer, of its group and of the step, compared with the logged loss.
 * @param {{sums: Api.LossSums | undefined, group: string}} props
 */
export function LossSums({ sums, group }) {
  if (!sums || sums.stored === null || sums.logged === null) return null;
  const groupSums = sums.groups.find(({ id }) => id === group);
  const completionLoss = pointedToken.value && groupSums?.completions[pointedToken.value.index];
  return html`<p class="loss-sums" aria-label="Sums of the loss">
    <span class="faint">loss:</span>
    <span class="loss-of-completion">
      completion ${pointedToken.value?.index ?? '–'} <b>${formatLoss(completionLoss)}</b>
    </span>
    ${groupSums && groupSums.loss !== null && html`<span>this group <b>${formatExact(groupSums.loss)}</b></span>`}
    <span title="All tokens of the step that are stored">stored <b>${formatExact(sums.stored)}</b></span>
    <span title="Groups of the step whose rollouts are not stored">+ not stored <b>${formatExact(sums.unstored)}</b></span>
    ${
      isRest(sums) &&
      html`<span title="Tokens that are no longer stored">
        + removed <b>${formatExact(sums.difference)}</b>
      </span>`
    }
    <span title="loss/total of the step">= logged <b>${formatExact(sums.logged)}</b></span>
  </p>`;
}

/** @param {Api.LossSums['stored'] | undefined} loss */
const formatLoss = (loss) => (loss === null || loss === undefined ? '' : formatExact(loss));

/** Returns whether the difference is larger than a rounding error. @param {Api.LossSums} sums */
function isRest({ difference, logged, stored, groups }) {
  if (typeof difference !== 'number') return true;
  const size = groups.reduce((sum, { loss }) => sum + Math.abs(Number(loss) || 0), 0);
  return Math.abs(difference) > 1e-6 * Math.max(size, Math.abs(Number(logged)), Math.abs(Number(stored)));
}

/** Returns seven digits, so that readers can check the sums. @param {number | string | null} value */
const formatExact = (value) =>
  typeof value === 'number' ? Number(value.toPrecision(7)).toString().replace(/-/g, '−') : formatValue(value);
