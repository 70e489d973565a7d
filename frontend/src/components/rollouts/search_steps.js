/** The number of matches at each step as a strip, where a click limits the search to some steps. */
import { html } from '../../dom.js';
import { formatCount, formatValue, plural } from '../../lib/text/format.js';
import { Failure, Skeleton } from '../shared/states.js';

const MAX_BARS = 120;

/** @typedef {{first: number, last: number, matched: number, total: number}} Bar */

/**
 * Returns the bars of a strip, in which neighbouring steps are grouped if there are many.
 * @param {Api.StepCount[]} items @returns {Bar[]}
 */
export function makeBars(items) {
  const stepsPerBar = Math.ceil(items.length / MAX_BARS) || 1;
  return Array.from({ length: Math.ceil(items.length / stepsPerBar) }, (_, i) => {
    const barItems = items.slice(i * stepsPerBar, (i + 1) * stepsPerBar);
    return {
      first: barItems[0].step,
      last: barItems[barItems.length - 1].step,
      matched: barItems.reduce((sum, { matched }) => sum + matched, 0),
      total: barItems.reduce((sum, { of }) => sum + of, 0),
    };
  });
}

/**
 * @param {{resource: import('../../data/resource.js').Resource<Api.StepCounts>, from: number | null, to: number | null,
 *   onWindow: (from: number | null, to: number | null) => void}} props
 */
export function SearchSteps({ resource, from, to, onWindow }) {
  const { data, error, reload } = resource;
  if (!data && error?.status === 422) return null;
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Skeleton} rows=${2} />`;
  const bars = makeBars(data.items);
  const matchedCount = bars.reduce((sum, bar) => sum + bar.matched, 0);
  const totalCount = bars.reduce((sum, bar) => sum + bar.total, 0);
  const highestShare = Math.max(0, ...bars.map((bar) => bar.matched / bar.total)) || 1;
  const isInWindow = (/** @type {Bar} */ bar) => bar.last >= (from ?? -Infinity) && bar.first <= (to ?? Infinity);
  const pick = (/** @type {Bar} */ bar) =>
    from === bar.first && to === bar.last ? onWindow(null, null) : onWindow(bar.first, bar.last);
  return html`<section class="card search-steps" aria-label="Matches over steps">
    <p class="quiet">
      ${countsText(matchedCount, totalCount, highestShare)}
      ${
        data.every > 1 &&
        html`<span title="Common words are counted in evenly chosen groups">
        · counted in one of ${data.every} groups
      </span>`
      }
      ${
        (from !== null || to !== null) &&
        html` · <button type="button" class="button-quiet" onClick=${() => onWindow(null, null)}>all steps</button>`
      }
    </p>
    <div class="search-bars">
      ${bars.map(
        (bar) => html`<button
          type="button"
          key=${bar.first}
          class=${isInWindow(bar) ? '' : 'is-out'}
          aria-pressed=${from === bar.first && to === bar.last}
          aria-label=${barText(bar)}
          title=${barText(bar)}
          onClick=${() => pick(bar)}
        >
          <span style=${{ height: `${(bar.matched / bar.total / highestShare) * 100}%` }}></span>
        </button>`,
      )}
    </div>
    ${
      bars.length > 0 &&
      html`<p class="search-axis faint">
        <span>step ${bars[0].first}</span>
        <span>step ${bars[bars.length - 1].last}</span>
      </p>`
    }
  </section>`;
}

/**
 * Returns the number of matches and the meaning of the strip's height.
 * @param {number} matchedCount @param {number} totalCount
 * @param {number} highestShare share
 */
export const countsText = (matchedCount, totalCount, highestShare) =>
  `${formatCount(matchedCount)} of ${plural(totalCount, 'completion')} match${
    matchedCount ? `; highest bar ${formatValue(highestShare * 100)} %` : ''
  }`;

/** @param {Bar} bar */
const barText = ({ first, last, matched, total }) =>
  `${first === last ? `step ${first}` : `steps ${first} to ${last}`}: ${matched} of ${total}`;
