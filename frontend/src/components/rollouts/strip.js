/** The number of completions that pass the filter at each step: a strip below the slider with links to the steps. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { plural } from '../../lib/text/format.js';
import { isFiltering } from '../../lib/rollouts.js';

const MAX_BARS = 80;

/**
 * @typedef {{first: number, last: number, completions: number, matching: number, stored: number, targetStep: number}}
 *   Bar
 */

/**
 * Returns the steps in at most `maxBars` bars. A bar links to its step with the most stored matching completions.
 * @param {Api.CountItem[]} items ascending @param {number} maxBars
 * @returns {Bar[]}
 */
export function makeBars(items, maxBars = MAX_BARS) {
  const size = Math.ceil(items.length / maxBars);
  /** @type {Bar[]} */
  const bars = [];
  for (let start = 0; start < items.length; start += size) {
    const barItems = items.slice(start, start + size);
    const sum = (/** @type {(item: Api.CountItem) => number} */ value) =>
      barItems.reduce((all, i) => all + value(i), 0);
    const bestItem = barItems.reduce((a, b) => (b.stored > a.stored ? b : a));
    bars.push({
      first: barItems[0].step,
      last: barItems[barItems.length - 1].step,
      completions: sum((item) => item.completions),
      matching: sum((item) => item.matching),
      stored: sum((item) => item.stored),
      targetStep: bestItem.step,
    });
  }
  return bars;
}

/** @param {Bar} bar */
function formatTitle({ first, last, completions, matching, stored }) {
  const steps = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  const storedText = stored === matching ? '' : `, ${stored} of them stored`;
  return `${steps}: ${matching} of ${plural(completions, 'completion')}${storedText}`;
}

/**
 * @param {{run: string, kind: string, step: number, filter: import('../../lib/rollouts.js').Filter, onStep: (step:
 *   number) => void}} props
 */
export function CountStrip({ run, kind, step, filter, onStep }) {
  const isOn = isFiltering(filter);
  const counts = useGet(
    isOn ? '/rollouts/counts' : null,
    { run, kind, mark: filter.filter, min_reward: filter.least },
    { live: ['points'], concerns: (data) => data.run === run, every: 4000 },
  );
  if (!isOn || !counts.data) return null;
  const bars = makeBars(counts.data.items);
  const highestShare = Math.max(...bars.map(({ matching, completions }) => matching / completions), 0);
  const total = bars.reduce((sum, { matching }) => sum + matching, 0);
  return html`<div class="count-strip">
    <span class="quiet">${plural(total, 'completion')} of all steps</span>
    <div class="count-bars" role="group" aria-label="Completions that pass the filter, by step">
      ${bars.map(
        (bar) => html`<button
          type="button"
          key=${bar.first}
          title=${formatTitle(bar)}
          aria-label=${formatTitle(bar)}
          aria-current=${bar.first <= step && step <= bar.last ? 'step' : undefined}
          disabled=${bar.stored === 0}
          onClick=${() => onStep(bar.targetStep)}
        >
          <span style=${{ height: `${highestShare ? (100 * bar.matching) / bar.completions / highestShare : 0}%` }}></span>
        </button>`,
      )}
    </div>
  </div>`;
}
