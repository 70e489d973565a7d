/**
 * What a policy wrote, as text nodes only: hidden characters as code points, tokens coloured, one token's numbers
 * below.
 */
import { html, signal, useEffect, useMemo, useRef, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { COLOURINGS, levelOf, LEVELS, probabilityText, startOf, tokensWithin, valueAt } from '../../lib/text/tokens.js';
import { visible, visiblePieces } from '../../lib/text/visible.js';
import { formatBytes, formatValue } from '../../lib/text/format.js';

const MOST_SHOWN = 20_000;
const MOST_KEPT = 300;

/** @typedef {Api.TokensAnswer} Tokens */
/** @typedef {{data?: Tokens, error?: Error}} LoadedTokens */

/** @type {Map<string, Promise<Tokens>>} tokens never change, so each completion is asked for once */
const kept = new Map();

/** @param {string} id @returns {Promise<Tokens>} */
function tokensOf(id) {
  const known = kept.get(id);
  if (known) return known;
  const answer = get(`/rollouts/${id}/tokens`);
  answer.catch(() => kept.delete(id));
  kept.set(id, answer);
  if (kept.size > MOST_KEPT) kept.delete([...kept.keys()][0]);
  return answer;
}

/**
 * Tokens of a completion, loaded when wanted.
 * @param {string} id
 * @param {boolean} wanted
 * @returns {LoadedTokens}
 */
export function useTokens(id, wanted) {
  const [state, setState] = useState(/** @type {LoadedTokens & {id: string}} */ ({ id: '' }));
  useEffect(() => {
    if (!wanted) return undefined;
    let current = true;
    const put = (/** @type {LoadedTokens} */ change) => current && setState({ id, ...change });
    tokensOf(id).then(
      (data) => put({ data }),
      (error) => put({ error }),
    );
    return () => {
      current = false;
    };
  }, [id, wanted]);
  return state.id === id ? state : {};
}

/** Hostile text made visible. @param {{text: string}} props */
export function Visible({ text }) {
  return visiblePieces(text).map((piece) =>
    piece.isCode ? html`<span class="code-point">${piece.text}</span>` : piece.text,
  );
}

/**
 * Plain text in full view up to a size, then on request.
 * @param {{text: string, label: string, class?: string}} props
 */
export function LongText({ text, label, class: name = '' }) {
  const [all, setAll] = useState(false);
  const shown = all ? text : startOf(text, MOST_SHOWN);
  const pieces = useMemo(() => html`<${Visible} text=${shown} />`, [shown]);
  return html`<div class=${`model-text ${name}`} tabindex="0" role="group" aria-label=${label}>
    ${pieces}
    ${shown.length < text.length && html`<${More} left=${text.length - shown.length} onMore=${() => setAll(true)} />`}
  </div>`;
}

/** @param {{left: number, onMore: () => void}} props */
const More = ({ left, onMore }) => html`<button type="button" class="button button-small model-more" onClick=${onMore}>
  ${formatBytes(left)} more
</button>`;

/**
 * The token that is pointed at, wherever it is on the page.
 * @type {import('../../../vendor/signals.js').Signal<{tokens: Tokens, at: number, label: string} | null>}
 */
const pointed = signal(null);

/**
 * The text of a completion token by token. The arrow keys move through the tokens; `Readout` shows the pointed one's
 * numbers.
 * @param {{text: string, tokens: Tokens, by: 'logprob'|'entropy', label: string}} props
 */
export function TokenText({ text, tokens, by, label }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const at = useRef(-1);
  const [all, setAll] = useState(false);
  const count = all ? tokens.tokens.length : tokensWithin(tokens.tokens, MOST_SHOWN);
  const spans = useMemo(
    () =>
      tokens.tokens.slice(0, count).map(
        (token, i) => html`<${Token}
          key=${i}
          token=${token}
          index=${i}
          level=${levelOf(by, valueAt(tokens.arrays[by], tokens.mask, i))}
        />`,
      ),
    [tokens, by, count],
  );
  const point = (/** @type {number} */ index) => {
    at.current = index;
    box.current?.querySelector('.is-at')?.classList.remove('is-at');
    box.current?.querySelector(`[data-token="${index}"]`)?.classList.add('is-at');
    pointed.value = index < 0 ? null : { tokens, at: index, label };
  };
  useEffect(
    () => () => {
      pointed.value = null;
    },
    [tokens],
  );
  const over = (/** @type {MouseEvent} */ event) => {
    const token = event.target instanceof Element && event.target.closest('[data-token]');
    if (token instanceof HTMLElement) point(Number(token.dataset.token));
  };
  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step || event.target !== box.current) return;
    event.preventDefault();
    point(Math.min(count - 1, Math.max(0, at.current + step)));
  };
  return html`<div
    class=${`model-text is-coloured by-${by}`}
    ref=${box}
    tabindex="0"
    role="group"
    aria-label=${`${label}; arrow keys move through the tokens`}
    onMouseOver=${over}
    onMouseLeave=${() => point(-1)}
    onKeyDown=${move}
    onBlur=${() => point(-1)}
  >
    ${spans}
    ${
      count < tokens.tokens.length &&
      html`<${More} left=${text.length - lengthOf(tokens.tokens, count)} onMore=${() => setAll(true)} />`
    }
  </div>`;
}

/** Characters in the first `count` tokens. @param {string[]} tokens @param {number} count */
const lengthOf = (tokens, count) => tokens.slice(0, count).reduce((sum, token) => sum + token.length, 0);

const BLANK_LINES = /^\s*\n\s*$/;

/** @param {{token: string, index: number, level: number | null}} props */
function Token({ token, index, level }) {
  const kind = level === null ? 'is-masked' : `heat-${level}`;
  return html`<span class=${`token ${kind}${BLANK_LINES.test(token) ? ' is-break' : ''}`} data-token=${index}>
    <${Visible} text=${token} />
  </span>`;
}

/** Numbers of the token that is pointed at. */
export function Readout() {
  if (!pointed.value) return html`<p class="readout faint">Hover over a token to see its values</p>`;
  const { tokens, at, label } = pointed.value;
  const isMasked = tokens.mask && !tokens.mask[at];
  const logprob = valueAt(tokens.arrays.logprob, tokens.mask, at);
  return html`<p class="readout" role="status">
    <span class="faint">
      ${label}, token ${at + 1}
    </span>${' '}
    <bdi class="readout-token">${spelledToken(tokens.tokens[at])}</bdi>
    ${isMasked && html`<span>masked: n/a</span>`}
    ${typeof logprob === 'number' && html`<span>p ${probabilityText(logprob)}</span>`}
    ${
      !isMasked &&
      Object.entries(tokens.arrays).map(
        ([name, values]) => html`<span key=${name}>
          <span class="faint">${name}</span>${' '}
          ${values[at] === null || values[at] === undefined ? 'n/a' : formatValue(values[at])}
        </span>`,
      )
    }
  </p>`;
}

/** A token in quotes in which white space can be seen. @param {string} token */
const spelledToken = (token) => (token === '' ? '∅' : [...token].map((c) => WHITE[c] ?? visible(c)).join(''));

/** @type {Record<string, string>} */
const WHITE = { '\n': '⏎', '\t': '⇥', ' ': '␣' };

/** What the colours mean. @param {{by: 'logprob'|'entropy'}} props */
export function ColourLegend({ by }) {
  const { label, unit, low, high } = COLOURINGS[by];
  return html`<span
    class=${`token-legend by-${by}`}
    aria-label=${`Colours of ${label} in ${unit}: from ${low} to ${high}; masked tokens have none`}
    role="img"
  >
    <span>${low}</span>
    <span class="legend-scale">
      ${Array.from({ length: LEVELS + 1 }, (_, i) => html`<span key=${i} class=${`heat-${i}`}></span>`)}
    </span>
    <span>${high}</span>
    <span class="faint">${unit}</span>
    <span class="token is-masked">n/a</span>
  </span>`;
}
