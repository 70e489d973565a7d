/** A run at a glance: key figures, key curves, objective and attempts. */
import { html } from '../../dom.js';
import { post } from '../../data/api.js';
import { useHistory } from '../../data/run_events.js';
import { useGet, useLoad } from '../../data/resource.js';
import { catalog, runLook } from '../../app/state.js';
import { chooseSections } from '../../lib/metric_choice.js';
import { KEY_METRICS, groupBySection, filterMetrics } from '../../lib/metrics.js';
import { costText } from '../../lib/service/queue.js';
import { isEvaluation } from '../../lib/runs/fields.js';
import { isForeign, isPushed, originTitle } from '../../lib/runs/origin.js';
import { makeMarks } from '../../lib/runs/marks.js';
import { listOnsets } from '../../lib/runs/verdicts.js';
import { SandboxLayers } from '../shared/marks.js';
import { formatDuration, formatPercent, formatShort, formatTime, formatValue } from '../../lib/text/format.js';
import { CurveToolbar, MetricSearch } from '../curves/controls.js';
import { MetricTreeMenu, WithMetricTree } from '../curves/metric_tree.js';
import { Formula } from '../shared/formula.js';
import { Panels } from '../curves/panels.js';
import { CheckReport } from '../shared/check_report.js';
import { Diagnosis } from './diagnosis.js';
import { Trend } from './glance.js';
import { Restorations } from './restorations.js';
import { SignalBudget } from './signal_budget.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { Empty } from '../shared/states.js';
import { lookup } from '../../lib/lookup.js';
import { DataTable, makeNumberHeads } from '../shared/data_table.js';

/**
 * The curves in the address of a run's page: `q` searches metrics, `metrics` are the chosen ones, and
 * `panel` is the enlarged one.
 * @typedef {import('../curves/controls.js').CurveView & {q: string, metrics: string[], panel: string}} RunView
 */
const SHOWN_OF_IMPORTED = 6;

/** Returns the names of the metrics that a run has recorded. @param {Api.RunItem} run */
export const listRecordedMetrics = (run) => Object.keys(run.summary?.last ?? {});

/**
 * Returns the props for the panels of one run: its look, name, and the events that change the meaning of its curves.
 * @param {Api.RunItem} run @param {Api.RunEvent[]} events
 */
function describeRun(run, events) {
  return {
    runs: [run.id],
    looks: new Map([[run.id, runLook(run)]]),
    names: new Map([[run.id, run.name]]),
    marks: makeMarks(events),
    onsets: listOnsets([run]),
  };
}

/** @param {{run: Api.RunItem, view: RunView, change: (changes: object) => void}} props */
export function Overview({ run, view, change }) {
  const events = useHistory(run.id).data ?? [];
  const line = describeRun(run, events);
  const recordedNames = listRecordedMetrics(run);
  const keys = KEY_METRICS.filter((metric) => recordedNames.includes(metric));
  const metrics = keys.length || !isForeign(run) ? keys : recordedNames.slice(0, SHOWN_OF_IMPORTED);
  const body = html`
    ${
      run.check &&
      html`<section class="card run-part run-check" aria-label="Check before launch">
        <h2>Check before launch</h2>
        <${CheckReport} report=${run.check} />
      </section>`
    }
    <${Figures} run=${run} />
    ${
      isEvaluation(run) && recordedNames.length
        ? html`<p class="quiet">
          This run ${run.is_check ? 'checked a config' : 'evaluated the policy once'} and did not train it.${' '}
          <a href=${`/run/${run.id}?tab=evaluations`}>Results with intervals</a>${' · '}
          <a href=${`/run/${run.id}?tab=rollouts`}>View completions</a>
        </p>`
        : metrics.length
          ? html`<${Panels} metrics=${metrics} ...${line} view=${view} change=${change} enlargedMetric=${view.panel} />`
          : html`<${NothingYet} run=${run} />`
    }
    <div class="run-pair section">
      ${
        isForeign(run)
          ? html`<${OriginCard} run=${run} events=${events} />`
          : html`
            <${ObjectiveCard} config=${run.config} />
            <${Attempts} run=${run} events=${events} />
          `
      }
    </div>
    ${!isEvaluation(run) && recordedNames.length > 0 && html`<${SignalBudget} run=${run.id} />`}
  `;
  return html`
    <h2 class="visually-hidden">Key figures and curves</h2>
    ${!isEvaluation(run) && recordedNames.length > 0 ? html`<${Diagnosis} run=${run}>${body}<//>` : body}
  `;
}

/** The reason why there are no curves yet, and when they will appear. @param {{run: Api.RunItem}} props */
function NothingYet({ run }) {
  if (isEvaluation(run) && run.status === 'running')
    return html`<${Empty} title="Evaluation in progress">Results appear here when all prompts are done.<//>`;
  if (run.status === 'queued')
    return html`<${Empty}
      title="Waiting for a worker"
      action=${html`<a class="button" href="/queue">
        View the queue
      </a>`}
    >
      ${
        isEvaluation(run)
          ? 'Results appear here when the evaluation is done.'
          : 'The curves appear here after the first step.'
      }${' '}
      The queue shows what the run is waiting for.
    <//>`;
  if (run.status === 'running' && isPushed(run))
    return html`<${Empty} title="Waiting for values">The trainer has begun the run and logged nothing yet.<//>`;
  if (run.status === 'running')
    return html`<${Empty} title="Training started">
      The first values come from the evaluation before step 1. This page updates automatically.
    <//>`;
  return html`<${Empty} title="No data">
    This run ended before ${isEvaluation(run) ? 'its evaluation was done' : 'its first step'}.
  <//>`;
}

/** @type {[string, string, (value: any) => string][]} metric, label, format */
const FIGURES = [
  ['eval/accuracy', 'held-out accuracy', formatValue],
  ['reward/accuracy', 'training accuracy', formatValue],
  ['reward/mean', 'reward', formatValue],
  ['policy/entropy', 'entropy', formatValue],
  ['length/mean', 'length', formatValue],
  ['throughput/tokens_per_second', 'tokens/s', formatShort],
  ['throughput/mfu', 'MFU', formatPercent],
  ['tokens/total', 'tokens', formatShort],
  ['time/wall_seconds', 'training time', formatDuration],
];

/** @type {Record<string, string>} */
const EVALUATED = { 'eval/length_mean': 'mean length', 'eval/truncated_frac': 'truncated' };

/** Figures that only grow. They mean nothing for a run without training, and their curves are straight lines. */
const ONLY_TRAINING = ['tokens/total', 'time/wall_seconds'];

/** The newest values, and the best value if it is known. @param {{run: Api.RunItem}} props */
function Figures({ run }) {
  const { last = {}, best = {}, older = {} } = run.summary ?? {};
  const suiteMetrics = isEvaluation(run)
    ? Object.keys(last)
        .filter((metric) => metric.startsWith('eval/') && metric !== 'eval/accuracy')
        .sort()
    : [];
  const usual = isEvaluation(run) ? FIGURES.filter(([metric]) => !ONLY_TRAINING.includes(metric)) : FIGURES;
  /** @type {typeof FIGURES} */
  const suiteFigures = suiteMetrics.map((metric) => [
    metric,
    lookup(EVALUATED, metric) ?? metric.slice('eval/'.length).replaceAll('_', ' '),
    formatValue,
  ]);
  const figures = [...usual, ...suiteFigures].filter(([metric]) => lookup(last, metric) !== undefined);
  if (!figures.length) return null;
  const cost = costText(run.cost);
  return html`<dl class="figures">
    ${figures.map(
      ([metric, label, format]) => html`<div key=${metric} title=${catalog.value.get(metric)?.meaning ?? metric}>
        <dt>${label}</dt>
        <dd>
          ${format(lookup(last, metric))}
          ${
            lookup(older, metric) !== undefined &&
            html`
              ${' '}
              <span class="faint" title="Not recorded since then">of step ${lookup(older, metric)}</span>
            `
          }
          ${
            !isEvaluation(run) &&
            !ONLY_TRAINING.includes(metric) &&
            html`<${Trend} run=${run.id} metric=${metric} format=${format} />`
          }
          ${
            lookup(best, metric) &&
            !isEvaluation(run) &&
            html`
              ${' '}
              <span class="faint">
                best ${format(lookup(best, metric).value)} at step ${lookup(best, metric).step}
              </span>
            `
          }
        </dd>
      </div>`,
    )}
    ${
      cost &&
      html`<div title="Time for which its attempts held worker slots, from claim to end">
        <dt>cost</dt>
        <dd>${cost}</dd>
      </div>`
    }
  </dl>`;
}

/**
 * The origin of a run from another trainer, and its consequences.
 * @param {{run: Api.RunItem, events: Api.RunEvent[]}} props
 */
function OriginCard({ run, events }) {
  const importEvent = events.find(({ data }) => data?.file);
  const steps = useGet('/rollouts/steps', { run: run.id });
  const hasNone = steps.data?.items.length === 0;
  return html`<section class="card run-part">
    <h2>${isPushed(run) ? 'Pushed by' : 'Imported from'} ${originTitle(run.origin)}</h2>
    ${
      importEvent &&
      html`<p>
        ${importEvent.message}
      </p>`
    }
    <p class="quiet">
      Another trainer ${isPushed(run) && run.status === 'running' ? 'makes' : 'made'} this run. Its curves can be
      compared with those of runs trained here; it has no
      checkpoints${hasNone ? ' and no completions' : ''}, so it cannot be resumed, forked or evaluated.
      ${Boolean(steps.data?.items.length) && html`${' '}<a href=${rolloutsAddress(run.id)}>Read its completions</a>.`}
      ${Object.keys(run.config ?? {}).length > 0 && ' The Config tab shows its settings as they were logged.'}
    </p>
  </section>`;
}

/** The objective of this run. @param {{config: Api.Config | null | undefined}} props */
function ObjectiveCard({ config }) {
  const validation = useLoad(JSON.stringify(config), (signal) => post('/validate', config ?? {}, { signal }), {
    subject: 'formula',
  });
  return html`<section class="card run-part">
    <h2>Objective</h2>
    ${
      validation.data
        ? html`<${Formula} valid=${validation.data} isOpen />`
        : html`<p class="faint">${validation.error ? `Formula unavailable: ${validation.error.message}` : 'Loading…'}</p>`
    }
  </section>`;
}

/**
 * The attempts of the run with their workers and first steps.
 * @param {{run: Api.RunItem, events: Api.RunEvent[]}} props
 */
function Attempts({ run, events }) {
  const attempts = run.attempts ?? [];
  return html`<section class="card run-part">
    <h2>Attempts</h2>
    ${
      attempts.length
        ? html`<${DataTable}
          name="Attempts"
          heads=${[...makeNumberHeads('#'), 'from step', 'worker', 'started', 'duration', 'outcome']}
        >
          <tbody>
            ${attempts.map(
              (attempt) => html`<tr key=${attempt.number}>
                <td class="number">${attempt.number}</td>
                <td>${describeStart(attempt)}</td>
                <td>
                  ${[attempt.host, attempt.device].filter(Boolean).join(' · ')}
                  ${
                    attempt.pid
                      ? html`
                        ${' '}
                        <span class="faint">pid ${attempt.pid}</span>
                      `
                      : ''
                  }
                  ${
                    attempt.versions?.sandbox &&
                    html`<div class="faint">
                      sandbox: <${SandboxLayers} layers=${attempt.versions.sandbox} />
                    </div>`
                  }
                </td>
                <td>${formatTime(attempt.started_at)}</td>
                <td>${formatDuration(computeDuration(attempt))}</td>
                <td class="attempt-outcome">${attempt.outcome || (attempt.ended_at ? 'ended' : 'running')}</td>
              </tr>`,
            )}
          </tbody>
        <//>`
        : html`<p class="quiet">
          No worker has picked up this run yet. The <a href="/queue">queue</a> shows what it is waiting for.
        </p>`
    }
    <${Restorations} events=${events} />
  </section>`;
}

const describeStart = (/** @type {Api.AttemptItem} */ { from_step: step }) =>
  step === null || step === undefined ? '–' : step < 0 ? 'start' : step;
const computeDuration = (/** @type {Api.AttemptItem} */ { started_at: from, ended_at: to }) =>
  from ? (new Date(to ?? Date.now()).getTime() - new Date(from).getTime()) / 1000 : null;

/** All metrics by section. @param {{run: Api.RunItem, view: RunView, change: (changes: object) => void}} props */
export function Charts({ run, view, change }) {
  const line = describeRun(run, useHistory(run.id).data ?? []);
  const all = listRecordedMetrics(run);
  if (!all.length)
    return run.finished_at
      ? html`<${Empty} title="No data">This run ended before it recorded a metric.<//>`
      : html`<${Empty} title="No data yet">Metrics appear after the first step.<//>`;
  const sections = view.q ? groupBySection(filterMetrics(all, view.q)) : chooseSections(all, view.metrics);
  const metrics = sections.flatMap((section) => section.metrics);
  const tree = { available: all, chosenNames: view.metrics, query: view.q, change };
  return html`
    <${CurveToolbar}
      view=${view}
      change=${change}
      available=${all}
      onsets=${line.onsets.length > 0}
      first=${html`
        <${MetricTreeMenu} ...${tree} />
        <${MetricSearch} query=${view.q} onChange=${(/** @type {string} */ q) => change({ q })} />
      `}
    />
    <${WithMetricTree} ...${tree}>
      ${
        metrics.length
          ? html`<${Panels}
            metrics=${metrics}
            ...${line}
            view=${view}
            change=${change}
            sections=${sections}
            enlargedMetric=${view.panel}
          />`
          : html`<${Empty}
            title=${view.q ? `No metric contains “${view.q}”` : 'No metrics selected'}
            action=${html`<button class="button" onClick=${() => change({ q: '', metrics: undefined })}>
              Show all ${all.length}
            </button>`}
          />`
      }
    <//>
  `;
}
