/** One completion: its reward, flags and text. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { ApiError } from '../../data/api.js';
import { isRight, isTruncated, otherFlags } from '../../lib/rollouts.js';
import { formatCount, formatValue } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { COLOURINGS, readValues } from '../../lib/text/tokens.js';
import { Task } from './task.js';
import { LongText, useTokens } from './text.js';
import { TokenText } from './tokens.js';
import { TurnBlocks } from './turns.js';

/** @typedef {import('../../lib/rollouts.js').Completion} Completion */

/**
 * Returns whether an element has ever been on or near the screen.
 * @returns {[object, boolean]} the element's ref and the result
 */
function useNear() {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const [isNear, setIsNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
        setIsNear(true);
        observer.disconnect();
      },
      { rootMargin: '400px' },
    );
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, isNear];
}

/** @typedef {'none' | import('../../lib/text/tokens.js').ColourName} Colour */

/**
 * @param {{group: Api.GroupItem, completion: Completion, index: number, colourBy: Colour, pinnedToken?: number | null,
 *   onPin?: (index: number, at: number | null) => void}} props `pinnedToken`: the token in the address
 */
export function RolloutCard({ group, completion, index, colourBy, pinnedToken = null, onPin }) {
  const [element, isNear] = useNear();
  const tokens = useTokens(completion.id, (isNear || pinnedToken !== null) && colourBy !== 'none');
  const label = `Completion ${index}`;
  const shows =
    colourBy !== 'none' && tokens.data && tokens.data.tokens.length > 0 && readValues(tokens.data, colourBy);
  return html`<article class="card rollout" ref=${element} aria-label=${label} data-completion=${completion.id}>
    <header class="rollout-head">
      <span class="faint">#${index}</span>
      <${Correct} isCorrect=${isRight(completion)} />
      <strong class="rollout-reward" title="Total reward">
        ${formatValue(completion.reward)}
      </strong>
      <${Advantage} value=${completion.advantage} />
      <span class="spacer"></span>
      ${
        isTruncated(completion) &&
        html`<span class="mark mark-warn" title="Truncated at the maximum length">
          ✂ truncated
        </span>`
      }
      ${completion.tokens > 0 && html`<span class="quiet">${formatCount(completion.tokens)} tok</span>`}
    </header>
    <${Task} prompt=${group.prompt} answer=${group.answer} />
    <${Terms} rewards=${completion.rewards} flags=${otherFlags(completion)} />
    ${
      shows
        ? html`<${TokenText}
          tokens=${tokens.data}
          colourBy=${colourBy}
          index=${index}
          pinnedToken=${pinnedToken}
          onPin=${onPin && ((/** @type {number | null} */ token) => onPin(index, token))}
        />`
        : html`
          ${
            completion.blocks.length > 0
              ? html`<${TurnBlocks} blocks=${completion.blocks} label=${label} />`
              : html`<${LongText} text=${completion.text} label=${label} />`
          }
          ${colourBy !== 'none' && html`<p class="token-note">${describeTokens(tokens, colourBy)}</p>`}
        `
    }
  </article>`;
}

/** @param {import('./text.js').LoadedTokens} tokens @param {import('../../lib/text/tokens.js').ColourName} colourBy */
function describeTokens({ data, error }, colourBy) {
  if (error && !(error instanceof ApiError && error.status === 404)) return `Tokens: ${error.message}`;
  if (data?.damage) return `Damaged: ${data.damage}`;
  if (data?.note && !readValues(data, colourBy)) return `Not stored: ${data.note}`;
  return data || error ? `Not recorded: ${COLOURINGS[colourBy].label}` : 'Loading tokens…';
}

/** A mark for right, wrong or not scored. @param {{isCorrect: boolean | null}} props */
function Correct({ isCorrect }) {
  if (isCorrect === null)
    return html`<span class="mark faint" title="Not graded">
      ?
    </span>`;
  return isCorrect
    ? html`<span class="mark mark-good" title="Correct">
      <${Icon} name="check" size=${14} label="correct" />
    </span>`
    : html`<span class="mark mark-bad" title="Wrong">
      <${Icon} name="cross" size=${14} label="wrong" />
    </span>`;
}

/** A signed advantage, coloured by its sign. @param {{value: number | string | null}} props */
export function Advantage({ value }) {
  if (value === null || value === undefined) return null;
  const sign = typeof value !== 'number' || value === 0 ? '' : value > 0 ? 'is-up' : 'is-down';
  const text = typeof value === 'number' && value > 0 ? `+${formatValue(value)}` : formatValue(value);
  return html`<span
    class=${`advantage ${sign}`}
    title="Advantage: if above 0, training makes this completion more likely"
  >
    A ${text}
  </span>`;
}

/** @param {{rewards: Completion['rewards'], flags: string[]}} props */
function Terms({ rewards, flags }) {
  return html`<p class="rollout-terms">
    ${Object.entries(rewards).map(
      ([name, value]) => html`<span key=${name}>
        ${name} <b>${value === null ? 'n/a' : formatValue(value)}</b>
      </span>`,
    )}
    ${flags.map(
      (flag) => html`<span class="tag" key=${flag}>
        ${flag.replaceAll('_', ' ')}
      </span>`,
    )}
  </p>`;
}
