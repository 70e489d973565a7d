/** Evaluations of a run: results by step and suite, and a way to evaluate its checkpoints. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { isEvaluation } from '../../lib/runs/fields.js';
import { isForeign } from '../../lib/runs/origin.js';
import { EvaluationTable } from '../evaluations/table.js';
import { Empty } from '../shared/states.js';
import { Evaluate } from './evaluate.js';

/** @param {{run: Api.RunItem}} props */
export function EvaluationsTab({ run }) {
  return html`<section class="card run-part" aria-labelledby="run-evaluations">
    <h2 id="run-evaluations">Evaluations</h2>
    <${EvaluationTable}
      runs=${[run]}
      empty=${html`<${Empty} title="No evaluations yet">
        Held-out sets and suites appear here when they have been evaluated.
      <//>`}
    >
      ${!isForeign(run) && !isEvaluation(run) && html`<${EvaluateCheckpoints} run=${run} />`}
    <//>
  </section>`;
}

/** A button, if there is something to evaluate. @param {{run: Api.RunItem}} props */
function EvaluateCheckpoints({ run }) {
  const { data } = useGet(`/runs/${run.id}/checkpoints`, undefined, {
    live: ['event'],
    concerns: (event) => event.run === run.id,
    every: 3000,
  });
  const steps = [...new Set((data?.items ?? []).map(({ step }) => step))];
  return steps.length > 0 && html`<${Evaluate} run=${run} steps=${steps} label="Evaluate checkpoints" />`;
}
