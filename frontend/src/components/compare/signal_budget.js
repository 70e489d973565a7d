/** Signal budgets of runs, with one stacked bar for each run. */
import { html, useState } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { runTitle } from '../../lib/runs/fields.js';
import { plural } from '../../lib/text/format.js';
import { Segments } from '../shared/marks.js';
import { BudgetBar, BudgetLegend, UNITS } from '../shared/signal_budget.js';

const MAX_RUNS = 100;
const OF_MARKS = 'from recorded completions';

/** @typedef {import('../shared/signal_budget.js').Unit} Unit */

/** @param {{runs: Api.RunItem[]}} props */
export function SignalBudgets({ runs }) {
  const shownRuns = runs.slice(0, MAX_RUNS);
  const resource = useGet('/signal-budget', { runs: shownRuns.map(({ id }) => id).join() });
  const [unit, choose] = useState(/** @type {Unit} */ ('completions'));
  const budgets = (resource.data?.items ?? []).filter(({ steps }) => steps);
  if (resource.error && !resource.data)
    return html`<p class="quiet" role="alert">Signal budget: ${resource.error.message}</p>`;
  if (!budgets.length) return null;
  const names = new Map(shownRuns.map((run) => [run.id, runTitle(run)]));
  const parts = [...new Set(budgets.flatMap((budget) => budget.parts))];
  return html`<section class="card section run-part" aria-labelledby="compare-budgets">
    <div class="toolbar">
      <h2 id="compare-budgets">Signal budget</h2>
      <${Segments} label="Unit" value=${unit} options=${UNITS} onChange=${choose} />
      <span class="spacer"></span>
      <a class="quiet" href="/help/rollouts#signal-budget">Definitions</a>
    </div>
    <${BudgetLegend} parts=${parts} />
    <ul class="budget-rows">
      ${budgets.map(
        (budget) => html`<li key=${budget.run}>
          <a href=${`/run/${budget.run}`}>${names.get(budget.run)}</a>
          ${
            budget.totals[unit]
              ? html`<${BudgetBar} parts=${budget.parts} values=${budget.totals[unit]} />`
              : html`<span class="faint">${unit} not known</span>`
          }
          <span class="faint">
            ${plural(budget.steps, 'step')}${budget.source === 'rollouts' ? `; ${OF_MARKS}` : ''}
          </span>
        </li>`,
      )}
    </ul>
    ${
      budgets.length < runs.length &&
      html`<p class="quiet">${budgets.length} of ${plural(runs.length, 'run')} have completions to count.</p>`
    }
  </section>`;
}
