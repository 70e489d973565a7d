/**
 * The evaluations of a run: results by step and suite, the prompts at each step, and the button for new evaluations.
 */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { isEvaluation } from '../../lib/runs/fields.js';
import { isForeign } from '../../lib/runs/origin.js';
import { EvaluationTable } from '../evaluations/table.js';
import { Probes } from '../rollouts/probes.js';
import { Empty } from '../shared/states.js';
import { Segments, Select } from '../shared/marks.js';
import { Evaluate } from './evaluate.js';

/** Maximum number of requested runs of an experiment. The service returns some of them and the number of the others. */
const MAX_RUNS = 200;
const HELD_OUT = 'eval';

/** @typedef {{run: Api.RunItem, view: {kind: string, across: boolean}, change: (changes: object) => void}} Props */

/** @param {Props} props */
export function EvaluationsTab(props) {
  const { run } = props;
  return html`
    <section class="card run-part" aria-labelledby="run-evaluations">
      <h2 id="run-evaluations">Results</h2>
      <${EvaluationTable}
        runs=${[run]}
        empty=${html`<${Empty} title="No evaluations yet">
          Held-out sets and suites appear here when they have been evaluated.
        <//>`}
      >
        ${!isForeign(run) && !isEvaluation(run) && html`<${EvaluateCheckpoints} run=${run} />`}
      <//>
    </section>
    <${Prompts} ...${props} />
  `;
}

/** A button, if the run has checkpoints to evaluate. @param {{run: Api.RunItem}} props */
function EvaluateCheckpoints({ run }) {
  const { data } = useGet(`/runs/${run.id}/checkpoints`, undefined, {
    live: ['event'],
    concerns: (event) => event.run === run.id,
    every: 3000,
  });
  const steps = [...new Set((data?.items ?? []).map(({ step }) => step))];
  return steps.length > 0 && html`<${Evaluate} run=${run} steps=${steps} label="Evaluate checkpoints" />`;
}

/** The prompts of an evaluation at its steps, for this run or all runs of the experiment. @param {Props} props */
function Prompts({ run, view, change }) {
  const experiment = view.across ? run.experiment : null;
  const siblings = useGet(experiment ? '/runs' : null, { experiment, limit: MAX_RUNS, sort: 'name' });
  const steps = useGet('/rollouts/steps', { run: run.id });
  const suites = new Set(steps.data?.items.map(({ kind }) => kind).filter((kind) => kind.startsWith('eval/')));
  const kind = view.kind.startsWith(HELD_OUT) ? view.kind : HELD_OUT;
  const runs = [run, ...(siblings.data?.items ?? []).filter(({ id }) => id !== run.id)];
  return html`<section class="section" aria-labelledby="run-probes">
    <div class="section-head">
      <h2 id="run-probes">Prompt by prompt</h2>
      <span class="spacer"></span>
      ${
        suites.size > 0 &&
        html`<${Select}
          label="set"
          value=${kind}
          options=${[...new Set([HELD_OUT, ...suites, kind])].map((value) => ({
            value,
            label: value === HELD_OUT ? 'held-out set' : value.slice('eval/'.length),
          }))}
          onChange=${(/** @type {string} */ value) => change({ kind: value })}
        />`
      }
      ${
        run.experiment &&
        html`<${Segments}
          label="Runs"
          value=${view.across ? 'experiment' : 'run'}
          options=${[{ value: 'run', label: 'this run' }, { value: 'experiment', label: 'all runs of the experiment' }]}
          onChange=${(/** @type {string} */ value) => change({ across: value === 'experiment' })}
        />`
      }
    </div>
    <${Probes}
      runs=${runs.map(({ id }) => id)}
      names=${Object.fromEntries(runs.map(({ id, name }) => [id, name]))}
      kind=${kind}
    />
  </section>`;
}
