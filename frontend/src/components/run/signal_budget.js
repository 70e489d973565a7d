/** The signal budget of one run, by step and in total. */
import { html, useState } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { plural } from '../../lib/text/format.js';
import { openRollouts } from '../curves/panel.js';
import { Segments } from '../shared/marks.js';
import { BudgetOverTime, BudgetTable, UNITS } from '../shared/signal_budget.js';

const BINS = 80;

/** @param {{run: string}} props */
export function SignalBudget({ run }) {
  const resource = useGet(
    '/signal-budget',
    { runs: run, bins: BINS },
    { live: ['points'], concerns: (data) => data.run === run, every: 10000 },
  );
  const [chosenUnit, setChosenUnit] = useState(
    /** @type {import('../shared/signal_budget.js').Unit} */ ('completions'),
  );
  if (resource.error && !resource.data) return html`<p class="quiet" role="alert">${resource.error.message}</p>`;
  const budget = resource.data?.items[0];
  if (!budget?.steps) return null;
  const unit = budget.totals[chosenUnit] ? chosenUnit : 'completions';
  return html`<section class="card section run-part" aria-label="Signal budget">
    <div class="toolbar">
      <h2>Signal budget</h2>
      <${Segments}
        label="Unit"
        value=${unit}
        options=${UNITS.filter(({ value }) => budget.totals[/** @type {'tokens'} */ (value)])}
        onChange=${setChosenUnit}
      />
      <span class="spacer"></span>
      <a class="quiet" href="/help/rollouts#signal-budget">Definitions</a>
    </div>
    <p class="quiet">
      ${
        budget.source === 'trainer'
          ? `All completions of ${plural(budget.steps, 'step')}, by what first kept them from moving the policy.`
          : `This run did not log its budget. It is counted from the completions recorded at ${plural(
              budget.steps,
              'step',
            )}, without seconds; masked, clipped and useful count together as trained.`
      }
    </p>
    <${BudgetOverTime}
      budget=${budget}
      unit=${unit}
      onStep=${(/** @type {number} */ step) => openRollouts(run, step)}
    />
    <${BudgetTable} budget=${budget} />
  </section>`;
}
