/** The groups of a step as a list, and one group in full: prompt, answer, and all completions side by side. */
import { html } from '../../dom.js';
import { groupFacts, isFiltering, isRight, isTruncated, passes, REASONS, sortCards } from '../../lib/rollouts.js';
import { lookup } from '../../lib/lookup.js';
import { toOneLine, readTokenAddress } from '../../lib/text/tokens.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { RolloutCard } from './card.js';
import { LongText } from './text.js';

/** @typedef {import('../../lib/rollouts.js').Group} Group */
/** @typedef {import('../../lib/rollouts.js').Filter} Filter */

/** @param {{groups: Group[], activeIndex: number, filter: Filter, onPick: (index: number) => void}} props */
export function GroupList({ groups, activeIndex, filter, onPick }) {
  return html`<nav class="card group-list" aria-label="Prompts of this step">
    <ol>
      ${groups.map((group, i) => {
        const { mean } = groupFacts(group);
        return html`<li key=${group.id}>
          <button type="button" aria-current=${i === activeIndex ? 'true' : undefined} onClick=${() => onPick(i)}>
            <span class="group-prompt">${toOneLine(group.prompt.slice(0, 400))}</span>
            <span class="number">
              ${
                group.left_out &&
                html`<span class="faint" title=${`Left out: ${lookup(REASONS, group.left_out) ?? group.left_out}`}>
                  left out${' '}
                </span>`
              }
              ${formatValue(mean)}
            </span>
            <${Dots} group=${group} filter=${filter} />
          </button>
        </li>`;
      })}
    </ol>
  </nav>`;
}

/**
 * Returns the classes of a completion's dot: right, truncated, or excluded by the filter.
 * @param {Api.CompletionItem} completion @param {Filter} filter
 */
function chooseDotClass(completion, filter) {
  const marks = [
    isRight(completion) && 'is-right',
    isTruncated(completion) && 'is-cut',
    !passes(filter, completion) && 'is-out',
  ];
  return ['dot', ...marks.filter(Boolean)].join(' ');
}

/**
 * One dot for each completion, filled if right and crossed out if truncated.
 * @param {{group: Group, filter: Filter}} props
 */
function Dots({ group, filter }) {
  const { rightCount, size } = groupFacts(group);
  const signs = group.completions.slice(0, 64);
  return html`<span class="dots" role="img" aria-label=${`${rightCount} of ${size} correct`}>
    ${signs.map(
      (completion) => html`<span
        key=${completion.id}
        class=${chooseDotClass(completion, filter)}
      ></span>`,
    )}
  </span>`;
}

/**
 * @param {{group: Group, filter: Filter, order: string, colourBy: import('./card.js').Colour, tokenAddress: string,
 *   onPin: (tokenAddress: string) => void}} props `tokenAddress`: the address of a token within the group
 */
export function GroupView({ group, filter, order, colourBy, tokenAddress, onPin }) {
  const pinnedToken = readTokenAddress(tokenAddress);
  const pin = (/** @type {number} */ index, /** @type {number | null} */ token) =>
    onPin(token === null ? '' : `${index}.${token}`);
  const cards = group.completions.map((completion, index) => ({ completion, index }));
  const shownCards = sortCards(
    cards.filter(({ completion }) => passes(filter, completion)),
    order,
  );
  return html`<section class="group" aria-label="Group">
    <${GroupHead} group=${group} />
    ${
      group.damage &&
      html`<p class="is-warning">Not all of it can be read: ${group.damage}. A backup may have the rest.</p>`
    }
    ${
      isFiltering(filter) &&
      html`<p class="quiet group-shown">
        ${shownCards.length} of ${plural(cards.length, 'completion')} shown
      </p>`
    }
    <div class="rollout-cards">
      ${shownCards.map(
        ({ completion, index }) => html`<${RolloutCard}
        key=${completion.id}
        group=${group}
        completion=${completion}
        index=${index}
        colourBy=${colourBy}
        pinnedToken=${pinnedToken?.[0] === index ? pinnedToken[1] : null}
        onPin=${pin} />`,
      )}
    </div>
  </section>`;
}

/** Prompt, expected answer and numbers of a group. @param {{group: Group}} props */
export function GroupHead({ group }) {
  const facts = groupFacts(group);
  return html`<header class="card group-head">
      <div class="group-question">
        <p class="faint group-label">prompt</p>
        <${LongText} text=${group.prompt} label="Prompt" class="group-text" />
      </div>
      <div class="group-answer">
        <p class="faint group-label">answer</p>
        <${LongText} text=${group.answer || '–'} label="Expected answer" class="group-text" />
      </div>
      <dl class="group-facts">
        <div>
          <dt>reward</dt>
          <dd>
            ${formatValue(facts.mean)}
            ${
              facts.size > 1 &&
              html`
                ${' '}
                <span class="faint">sd ${formatValue(facts.std)}</span>
              `
            }
          </dd>
        </div>
        <div>
          <dt>correct</dt>
          <dd>
            ${facts.rightCount} of ${facts.size}
          </dd>
        </div>
        ${
          group.kind !== 'eval' &&
          html`<div>
            <dt>reward spread</dt>
            <dd
              class=${facts.useful ? '' : 'is-warning'}
              title=${
                facts.useful
                  ? 'The rewards of this group differ'
                  : 'All rewards are equal. With a baseline from the group (GRPO, RLOO), its advantages are 0.'
              }
            >
              ${facts.useful ? 'yes' : 'none'}
            </dd>
          </div>`
        }
        ${
          group.left_out &&
          html`<div>
            <dt>left out</dt>
            <dd class="is-warning">${lookup(REASONS, group.left_out) ?? group.left_out}</dd>
          </div>`
        }
        <div>
          <dt>source</dt>
          <dd>
            ${group.problem} <span class="faint">${group.domain}</span>
          </dd>
        </div>
      </dl>
    </header>`;
}
