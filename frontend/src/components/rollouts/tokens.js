/** A completion token by token, with colours by a value, the numbers of a token, and the sums of the loss. */
import { html, signal, useEffect, useMemo, useRef, useState } from '../../dom.js';
import { copyText } from '../../app/actions.js';
import {
  chunksOf,
  COLOURINGS,
  isSigned,
  levelClass,
  levelOf,
  LEVELS,
  probabilityText,
  spelledToken,
  valueAt,
  valuesOf,
} from '../../lib/text/tokens.js';
import { formatValue } from '../../lib/text/format.js';
import { Alternatives } from './alternatives.js';
import { MAX_SHOWN, ShowMore, Visible } from './text.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {Api.TokensAnswer} Tokens */
/** @typedef {import('../../lib/text/tokens.js').ColourName} ColourName */

/** @typedef {{tokens: Tokens, at: number, index: number, pinned: boolean}} Pointed */
/**
 * The token under the pointer, anywhere on the page. A pinned token stays when the pointer leaves.
 * @type {import('../../../vendor/signals.js').Signal<Pointed | null>}
 */
const pointed = signal(null);

const KEYS = {
  ArrowRight: (/** @type {number} */ at) => at + 1,
  ArrowLeft: (/** @type {number} */ at) => at - 1,
  Home: () => 0,
  End: () => Infinity,
};

/**
 * The text of a completion token by token, rendered in chunks so that long texts stay fast. The arrow keys, Home and
 * End move through the tokens. A click or Enter pins a token, and Escape releases it.
 * @param {{tokens: Tokens, by: ColourName, index: number, pinned: number | null,
 *   onPin?: (at: number | null) => void}} props `index`: of the completion in its group; without `onPin` no token
 *   can be pinned
 */
export function TokenText({ tokens, by, index, pinned, onPin }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const at = useRef(-1);
  const chunks = useMemo(() => chunksOf(tokens.tokens, MAX_SHOWN), [tokens]);
  const values = useMemo(() => valuesOf(tokens, by), [tokens, by]);
  const [count, setCount] = useState(1);
  const last = tokens.tokens.length - 1;
  const element = (/** @type {number} */ token) => box.current?.querySelector(`[data-token="${token}"]`);
  const point = (/** @type {number} */ token, keeps = false) => {
    at.current = token;
    box.current?.querySelector('.is-at')?.classList.remove('is-at');
    element(token)?.classList.add('is-at');
    pointed.value = token < 0 ? null : { tokens, at: token, index, pinned: keeps };
  };
  const show = (/** @type {number} */ token) =>
    setCount((before) => Math.max(before, 1 + chunks.findIndex(([, end]) => token < end)));
  const leave = () => {
    if (pinned === null) point(-1);
    else if (pinned <= last) point(pinned, true);
  };
  useEffect(
    () => () => {
      if (pointed.value?.tokens === tokens) pointed.value = null;
    },
    [tokens],
  );
  useEffect(() => {
    if (pinned === null || pinned > last) return;
    show(pinned);
    requestAnimationFrame(() => {
      point(pinned, true);
      element(pinned)?.scrollIntoView({ block: 'nearest' });
    });
  }, [pinned, tokens]);
  const tokenOf = (/** @type {Event} */ event) => {
    const token = event.target instanceof Element && event.target.closest('[data-token]');
    return token instanceof HTMLElement ? Number(token.dataset.token) : null;
  };
  const over = (/** @type {MouseEvent} */ event) => {
    const token = tokenOf(event);
    if (token !== null) point(token, token === pinned);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = Object.hasOwn(KEYS, event.key) && KEYS[/** @type {keyof typeof KEYS} */ (event.key)];
    if (event.key === 'Enter' && onPin && at.current >= 0) onPin(at.current);
    else if (event.key === 'Escape' && onPin && pinned !== null) onPin(null);
    else if (move) {
      const next = Math.min(last, Math.max(0, move(at.current)));
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
    class=${`model-text is-coloured by-${by}`}
    ref=${box}
    tabindex="0"
    role="group"
    aria-label=${`Completion ${index}; arrow keys move through the tokens${onPin ? ', Enter pins one' : ''}`}
    onMouseOver=${over}
    onMouseLeave=${leave}
    onClick=${(/** @type {MouseEvent} */ event) => {
      const token = tokenOf(event);
      if (token !== null) onPin?.(token === pinned ? null : token);
    }}
    onKeyDown=${key}
    onBlur=${leave}
  >
    ${chunks
      .slice(0, count)
      .map(
        ([first, end]) =>
          html`<${Chunk} key=${first} tokens=${tokens} values=${values} by=${by} first=${first} end=${end} />`,
      )}
    ${
      count < chunks.length &&
      html`<${ShowMore} left=${lengthFrom(tokens.tokens, chunks[count][0])} onMore=${() => setCount(count + 1)} />`
    }
  </div>`;
}

/** Returns the number of characters from a token to the end. @param {string[]} tokens @param {number} first */
const lengthFrom = (tokens, first) => tokens.slice(first).reduce((sum, token) => sum + token.length, 0);

/**
 * @param {{tokens: Tokens, values: (number | string)[] | undefined, by: ColourName, first: number, end: number}} props
 */
function Chunk({ tokens, values, by, first, end }) {
  return useMemo(
    () =>
      tokens.tokens.slice(first, end).map(
        (token, i) => html`<${Token}
          key=${i}
          token=${token}
          index=${first + i}
          level=${levelOf(by, valueAt(values, tokens.mask, first + i))}
          observed=${tokens.observed[first + i] === 1}
        />`,
      ),
    [tokens, values, by, first, end],
  );
}

const BLANK_LINES = /^\s*\n\s*$/;

/** @param {{token: string, index: number, level: number | null, observed: boolean}} props */
function Token({ token, index, level, observed }) {
  const shape = `${BLANK_LINES.test(token) ? ' is-break' : ''}${observed ? ' is-observation' : ''}`;
  const look = `token ${levelClass(observed ? null : level)}${shape}`;
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
 * @param {Tokens} tokens @param {number} at @returns {[string, string][]}
 */
function valuesAt(tokens, at) {
  const names = Object.keys(tokens.arrays);
  const shown = ['mismatch', ...('advantage' in tokens.arrays ? [] : ['advantage'])];
  const derived = shown.map((name) => [name, valuesOf(tokens, /** @type {ColourName} */ (name))?.[at]]);
  return [...names.map((name) => [name, lookup(tokens.arrays, name)[at]]), ...derived]
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [
      String(name),
      name === 'clipped' ? (SIDES.get(Number(value)) ?? 'no') : value === null ? 'n/a' : formatValue(value),
    ]);
}

/** The numbers of the token under the pointer. */
export function Readout() {
  if (!pointed.value) {
    return html`<p class="readout faint">Point at a token to see its values; click or tap it to pin them and get a link</p>`;
  }
  const { tokens, at, index, pinned } = pointed.value;
  const isObserved = tokens.observed[at] === 1;
  const isMasked = isObserved || (tokens.mask && !tokens.mask[at]);
  const logprob = valueAt(tokens.arrays.logprob, tokens.mask, at);
  const copy = () =>
    copyText(
      [['token', JSON.stringify(tokens.tokens[at])], ['id', String(tokens.token_ids[at])], ...valuesAt(tokens, at)]
        .map(([name, value]) => `${name}\t${value}`)
        .join('\n'),
      'Values',
    );
  return html`<p class="readout" role="status">
    <span class="faint">
      Completion ${index}, token ${at + 1}
    </span>${' '}
    <bdi class="readout-token">${spelledToken(tokens.tokens[at])}</bdi>
    <span class="faint">id ${tokens.token_ids[at]}</span>
    ${isMasked && html`<span>${isObserved ? 'observation of a tool' : 'masked'}: no part of the loss</span>`}
    ${!isObserved && typeof logprob === 'number' && html`<span>p ${probabilityText(logprob)}</span>`}
    ${
      !isMasked &&
      valuesAt(tokens, at).map(
        ([name, value]) => html`<span key=${name}>
          <span class="faint">${name.replaceAll('_', ' ')}</span>${' '}${value}
        </span>`,
      )
    }
    <${Alternatives} tokens=${tokens} at=${at} />
    ${
      pinned &&
      html`
        <button type="button" class="button-quiet" onClick=${copy}>Copy values</button>
        <button type="button" class="button-quiet" onClick=${() => copyText(location.href, 'Link')}>Copy link</button>
      `
    }
  </p>`;
}

/** The meaning of the colours. @param {{by: ColourName}} props */
export function ColourLegend({ by }) {
  const { label, unit, low, high } = COLOURINGS[by];
  const first = isSigned(by) ? -LEVELS : 0;
  return html`<span
    class=${`token-legend by-${by}`}
    aria-label=${`Colours of ${label}${unit && ` in ${unit}`}: from ${low} to ${high}; masked tokens have none`}
    role="img"
  >
    <span>${low}</span>
    <span class="legend-scale">
      ${Array.from(
        { length: LEVELS - first + 1 },
        (_, i) => html`<span key=${i} class=${levelClass(first + i)}></span>`,
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
  const completionLoss = pointed.value && groupSums?.completions[pointed.value.index];
  return html`<p class="loss-sums" aria-label="Sums of the loss">
    <span class="faint">loss:</span>
    <span class="loss-of-completion">
      completion ${pointed.value?.index ?? '–'} <b>${formatLoss(completionLoss)}</b>
    </span>
    ${groupSums && groupSums.loss !== null && html`<span>this group <b>${exact(groupSums.loss)}</b></span>`}
    <span title="All tokens of the step that are stored">stored <b>${exact(sums.stored)}</b></span>
    <span title="Groups of the step whose rollouts are not stored">+ not stored <b>${exact(sums.unstored)}</b></span>
    ${
      isRest(sums) &&
      html`<span title="Tokens that are no longer stored">
        + removed <b>${exact(sums.difference)}</b>
      </span>`
    }
    <span title="loss/total of the step">= logged <b>${exact(sums.logged)}</b></span>
  </p>`;
}

/** @param {Api.LossSums['stored'] | undefined} loss */
const formatLoss = (loss) => (loss === null || loss === undefined ? '' : exact(loss));

/** Returns whether the difference is larger than a rounding error. @param {Api.LossSums} sums */
function isRest({ difference, logged, stored, groups }) {
  if (typeof difference !== 'number') return true;
  const size = groups.reduce((sum, { loss }) => sum + Math.abs(Number(loss) || 0), 0);
  return Math.abs(difference) > 1e-6 * Math.max(size, Math.abs(Number(logged)), Math.abs(Number(stored)));
}

/** Returns seven digits, so that readers can check the sums. @param {number | string | null} value */
const exact = (value) =>
  typeof value === 'number' ? Number(value.toPrecision(7)).toString().replace(/-/g, '−') : formatValue(value);
