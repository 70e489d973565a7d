/** The signal budget: the parts of sampled data that trained the policy or not, as stacked bars and as a table. */
import { html } from '../../dom.js';
import { formatCount, formatDuration, formatPercent } from '../../lib/text/format.js';
import { lookup } from '../../lib/lookup.js';
import { DataTable, makeNumberHeads } from './data_table.js';

/** @typedef {'completions' | 'tokens' | 'seconds'} Unit */

export const UNITS = [
  { value: 'completions', label: 'completions' },
  { value: 'tokens', label: 'tokens' },
  { value: 'seconds', label: 'seconds' },
];

/** Label and definition of each part. @type {Record<string, [string, string]>} */
const PARTS = {
  truncated: ['truncated', 'Truncated at the length cap'],
  equal_right: ['equal, right', 'Right, with advantage 0, or in a group with one reward only'],
  equal_wrong: ['equal, wrong', 'Wrong, with advantage 0, or in a group with one reward only'],
  left_out: ['left out', 'Its group did not train'],
  masked: ['masked', 'Trained, with no part in the policy gradient'],
  clipped: ['clipped', 'Clipped at its last update'],
  useful: ['useful', 'Moved the policy'],
  untold: ['trained', 'Trained; the log does not say whether it was masked, clipped or useful'],
};

/** @param {string} part */
export const partLabel = (part) => lookup(PARTS, part)?.[0] ?? part;
/** @param {string} part */
export const partMeaning = (part) => lookup(PARTS, part)?.[1] ?? '';

/** @param {number[]} values */
const addUp = (values) => values.reduce((sum, value) => sum + value, 0);

/** Returns the share of each part, or an empty list if the sum is 0. @param {number[]} values */
export function computeShares(values) {
  const sum = addUp(values);
  return sum > 0 ? values.map((value) => value / sum) : values.map(() => 0);
}

/** @param {string[]} parts @param {number[]} values */
const describeBudget = (parts, values) =>
  computeShares(values)
    .map((share, i) => /** @type {[string, number]} */ ([parts[i], share]))
    .filter(([, share]) => share > 0)
    .map(([part, share]) => `${formatPercent(share, 1)} ${partLabel(part)}`)
    .join(', ');

/** A stacked bar from left to right. @param {{parts: string[], values: number[]}} props */
export const BudgetBar = ({ parts, values }) => html`<span
  class="budget-bar"
  role="img"
  aria-label=${describeBudget(parts, values)}
  title=${describeBudget(parts, values)}
>
  <${BudgetParts} parts=${parts} values=${values} side="width" />
</span>`;

/** @param {{parts: string[], values: number[], side: 'width' | 'height'}} props */
const BudgetParts = ({ parts, values, side }) =>
  computeShares(values).map(
    (share, i) =>
      share > 0 &&
      html`<span key=${parts[i]} class=${`budget-piece is-${parts[i]}`} style=${{ [side]: `${100 * share}%` }}></span>`,
  );

/**
 * A stacked bar for each range of steps, with a link to its completions.
 * @param {{budget: Api.SignalBudget, unit: Unit, onStep: (step: number) => void}} props
 */
export const BudgetOverTime = ({ budget, unit, onStep }) => html`<div
  class="budget-bars"
  role="group"
  aria-label="Signal budget by step"
>
  ${budget.bins.map((bin) => {
    const values = bin[unit] ?? [];
    const steps = bin.first === bin.last ? `step ${bin.first}` : `steps ${bin.first} to ${bin.last}`;
    const title = `${steps}: ${describeBudget(budget.parts, values)}`;
    return html`<button
      type="button"
      key=${bin.first}
      title=${title}
      aria-label=${title}
      onClick=${() => onStep(bin.first)}
    >
      <${BudgetParts} parts=${budget.parts} values=${values} side="height" />
    </button>`;
  })}
</div>`;

/** @param {number} value @param {Unit} unit */
const formatAmount = (value, unit) => (unit === 'seconds' ? formatDuration(value) : formatCount(Math.round(value)));

/** All parts with their shares in every known unit. @param {{budget: Api.SignalBudget}} props */
export function BudgetTable({ budget }) {
  const units = UNITS.map(({ value }) => /** @type {Unit} */ (value)).filter((unit) => budget.totals[unit]);
  const shares = Object.fromEntries(units.map((unit) => [unit, computeShares(budget.totals[unit])]));
  return html`<${DataTable}
    name="Parts of the signal budget"
    kind="table budget-table"
    heads=${['part', ...makeNumberHeads(...units)]}
  >
    <tbody>
      ${budget.parts.map(
        (part, i) => html`<tr key=${part}>
          <th scope="row" title=${partMeaning(part)}>
            <span class=${`budget-key is-${part}`}></span> ${partLabel(part)}
          </th>
          ${units.map(
            (unit) => html`<td key=${unit} class="number">
              ${formatPercent(shares[unit][i], 1)}
              ${' '}<span class="faint">${formatAmount(budget.totals[unit][i], unit)}</span>
            </td>`,
          )}
        </tr>`,
      )}
    </tbody>
    <tfoot>
      <tr>
        <th scope="row">all</th>
        ${units.map(
          (unit) => html`<td key=${unit} class="number">
            ${formatPercent(addUp(shares[unit]), 1)}
            ${' '}<span class="faint">${formatAmount(addUp(budget.totals[unit]), unit)}</span>
          </td>`,
        )}
      </tr>
    </tfoot>
  <//>`;
}

/** The parts with their colours. @param {{parts: string[]}} props */
export const BudgetLegend = ({ parts }) => html`<ul class="budget-legend">
  ${parts.map(
    (part) => html`<li key=${part} title=${partMeaning(part)}>
      <span class=${`budget-key is-${part}`}></span> ${partLabel(part)}
    </li>`,
  )}
</ul>`;
