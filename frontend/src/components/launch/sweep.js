/** The sweep of a launch: its knobs with their values, and the resulting cells with time and cost. */
import { html, useId, useState } from '../../dom.js';
import { catalog } from '../../app/state.js';
import { post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { formatShortValue } from '../../lib/launch/form.js';
import { withKnob, withoutKnob } from '../../lib/launch/sweep.js';
import { formatDurationRange, formatMoney, formatShort, plural } from '../../lib/text/format.js';
import { Errors } from './row.js';
import { WholeNumber } from './number.js';
import { SearchSettings } from './search_settings.js';
import { IconButton } from '../shared/icons.js';
import { Segments } from '../shared/marks.js';
import { useSettled } from '../shared/settled.js';

const PAUSE_MS = 300;

/** @typedef {import('../../lib/launch/sweep.js').Sweep} Sweep */
/** @typedef {{path: string, message: string}} FieldError */
/**
 * @typedef {{plan: Api.ExperimentPlan | undefined, checking: boolean, errors: FieldError[], problem: string}} Planned
 *   `plan` is the newest answer, which stays until the next one arrives; `errors` are the reasons if there is none
 */

/**
 * Loads the plan of a launch with this body when the body has not changed for a moment.
 * @param {object | null} body
 */
export function usePlan(body) {
  const content = body && JSON.stringify(body);
  const settledContent = useSettled(content, PAUSE_MS);
  const key = content && settledContent;
  const { data, error, loading } = useLoad(
    key,
    (signal) => post('/experiments/plan', JSON.parse(/** @type {string} */ (key)), { signal }),
    { subject: key && 'plan' },
  );
  if (!content) return null;
  const isRefused = error?.status === 422;
  return /** @type {Planned} */ ({
    plan: error ? undefined : data,
    checking: loading || settledContent !== content,
    errors: isRefused ? error.errors : [],
    problem: error && !(isRefused && error.errors.length) ? error.message : '',
  });
}

/** Returns the number of errors to correct before the cells can be launched. @param {Planned | null} planState */
export const countErrors = (planState) => {
  if (!planState) return 0;
  const wrongCount = planState.plan?.cells.filter(({ errors }) => errors.length).length ?? 0;
  const isLeftOut = planState.plan?.search && planState.plan.search.refused < planState.plan.search.drawn;
  return planState.errors.length + (isLeftOut ? 0 : wrongCount);
};

/**
 * @param {{sweep: Sweep, planState: Planned | null, offers: import('../../lib/launch/sweep.js').SweptKnob[],
 *   onChange: (sweep: Sweep) => void}} props `offers`: the knobs that can be added
 */
export function SweepCard({ sweep, planState, offers, onChange }) {
  const errors = (planState?.errors ?? []).filter(({ path }) => !path.startsWith('sweep.knobs.'));
  return html`<section class="card launch-card sweep" aria-labelledby="launch-sweep">
    <h2 id="launch-sweep">
      <span class="launch-number">6</span> Sweep
    </h2>
    <p class="form-help">
      Every variant runs with every combination of these values. A list <code>1e-4, 3e-4</code>, a range
      ${' '}<code>1e-5..1e-3 log 5</code>, <code>0..1 lin 5</code>, <code>2..16 step 2</code>; random sweeps also draw
      from <code>1e-5..1e-3 log</code>, and so do searches. You can type them into any number above.
    </p>
    ${sweep.knobs.map(
      (knob, i) => html`<${KnobRow}
        key=${knob.path}
        knob=${knob}
        errors=${(planState?.errors ?? []).filter(({ path }) => path.startsWith(`sweep.knobs.${i}.`))}
        onValues=${(/** @type {string} */ values) => onChange(withKnob(sweep, knob.path, values))}
        onRemove=${() => onChange(withoutKnob(sweep, knob.path))}
      />`,
    )}
    <${AddKnob} offers=${offers} sweep=${sweep} onChange=${onChange} />
    ${sweep.knobs.length > 0 && html`<${Method} sweep=${sweep} onChange=${onChange} />`}
    <${Errors} errors=${errors.map(({ message }) => message)} id="launch-sweep-error" />
    ${planState?.problem && html`<p class="launch-failure">Could not plan the sweep: ${planState.problem}</p>`}
    ${planState?.plan && html`<${Cells} plan=${planState.plan} isOld=${planState.checking} />`}
  </section>`;
}

/**
 * @param {{knob: import('../../lib/launch/sweep.js').SweptKnob, errors: FieldError[],
 *   onValues: (values: string) => void, onRemove: () => void}} props
 */
function KnobRow({ knob, errors, onValues, onRemove }) {
  const id = useId();
  return html`<div class="form-field sweep-knob">
    <label class="form-label" for=${id}>${knob.path}</label>
    <span class="sweep-values">
      <input
        class="field"
        id=${id}
        value=${knob.values}
        onInput=${(event) => onValues(event.target.value)}
        spellcheck=${false}
        autocomplete="off"
        aria-invalid=${errors.length ? 'true' : undefined}
        aria-describedby=${errors.length ? `${id}-error` : undefined}
      />
      <${IconButton} icon="cross" label=${`Do not sweep ${knob.path}`} title="Remove" onClick=${onRemove} />
    </span>
    <${Errors} errors=${errors.map(({ message }) => message)} id=${`${id}-error`} />
  </div>`;
}

/**
 * @param {{offers: import('../../lib/launch/sweep.js').SweptKnob[], sweep: Sweep,
 *   onChange: (sweep: Sweep) => void}} props
 */
function AddKnob({ offers, sweep, onChange }) {
  const [typedPath, setTypedPath] = useState('');
  const id = useId();
  const freeOffers = offers.filter(({ path }) => !sweep.knobs.some((knob) => knob.path === path));
  const offer = freeOffers.find(({ path }) => path === typedPath.trim());
  const add = () => {
    if (!offer) return;
    onChange(withKnob(sweep, offer.path, offer.values));
    setTypedPath('');
  };
  return html`<div class="sweep-values sweep-add">
    <input
      class="field"
      aria-label="Knob to sweep"
      placeholder="knob, such as optimizer.lr"
      list=${`${id}-list`}
      value=${typedPath}
      onInput=${(event) => setTypedPath(event.target.value)}
      onKeyDown=${(event) => {
        if (event.key === 'Enter') add();
      }}
      spellcheck=${false}
      autocomplete="off"
    />
    <datalist id=${`${id}-list`}>${freeOffers.map(({ path }) => html`<option value=${path}></option>`)}</datalist>
    <button type="button" class="button" disabled=${!offer} onClick=${add}>Add knob</button>
  </div>`;
}

const METHODS = [
  { value: 'grid', label: 'Grid', title: 'Every combination' },
  { value: 'random', label: 'Random', title: 'A sample of the combinations; the same seed draws the same one' },
  { value: 'search', label: 'Search', title: 'One after the other, by the results so far' },
];

/** Returns the metrics of the catalog that a search can optimise, evaluations first. */
const listObjectives = () =>
  [...catalog.value.values()]
    .filter(({ name, better }) => better && !/[<>]/.test(name))
    .map(({ name }) => name)
    .sort((a, b) => Number(b.startsWith('eval/')) - Number(a.startsWith('eval/')));

/** @param {{sweep: Sweep, onChange: (sweep: Sweep) => void}} props */
function Method({ sweep, onChange }) {
  const number = (/** @type {'cells' | 'seed'} */ key, /** @type {string} */ label) =>
    html`<${WholeNumber}
      label=${label}
      value=${sweep[key]}
      onChange=${(/** @type {number} */ value) => onChange({ ...sweep, [key]: value })}
    />`;
  const isSearch = sweep.method === 'search';
  return html`<div class="toolbar">
      <${Segments}
        label="Combinations"
        value=${sweep.method}
        options=${METHODS}
        onChange=${(/** @type {Sweep['method']} */ method) => onChange({ ...sweep, method })}
      />
      ${
        sweep.method !== 'grid' &&
        html`${number('cells', isSearch ? 'configurations at most' : 'cells')}
        ${number('seed', isSearch ? 'seed of the sampler' : 'seed of the sample')}`
      }
    </div>
    ${isSearch && html`<${SearchSettings} sweep=${sweep} metrics=${listObjectives()} onChange=${onChange} />`}`;
}

/** @param {number | null} low @param {number | null} high @param {string | null} currency */
const formatMoneyRange = (low, high, currency) => `${formatMoney(low ?? 0)} – ${formatMoney(high ?? 0)} ${currency}`;

/** The cells, in the order in which they are queued. @param {{plan: Api.ExperimentPlan, isOld: boolean}} props */
function Cells({ plan, isOld }) {
  const { cells, knobs, runs, currency, search } = plan;
  const seeds = cells.length ? runs / cells.length : 0;
  const isMixed = new Set(cells.map(({ of }) => of)).size > 1;
  const wrongCount = cells.filter(({ errors }) => errors.length).length;
  return html`
    <p class="sweep-total" role="status">
      <strong>
        ${
          search
            ? `At most ${plural(search.configurations, 'configuration')} + ${search.top} × ${plural(
                search.top ? search.additional_runs / search.top : 0,
                'remaining seed',
              )} = ${plural(runs, 'run')}`
            : `${plural(cells.length, 'cell')} × ${plural(seeds, 'seed')} = ${plural(runs, 'run')}`
        }
      </strong>
      ${' '}· ${formatDurationRange(plan.seconds_low, plan.seconds_high)} of worker slots
      ${' '}· at most ${formatShort(plan.tokens_at_most)} tokens
      ${currency && html` · ${formatMoneyRange(plan.money_low, plan.money_high, currency)}`}
      ${wrongCount > 0 && html`${' '}· <span class="is-warning">${plural(wrongCount, 'cell')} cannot run</span>`}
    </p>
    ${
      search &&
      html`<p class="form-help">
        Examples of configurations, drawn from the ranges. The search leaves out those that cannot run.
      </p>`
    }
    <div class=${isOld ? 'table-scroll sweep-cells is-stale' : 'table-scroll sweep-cells'} tabindex="0" role="group"
      aria-label="Cells">
      <table class="table">
        <caption class="visually-hidden">Cells of the sweep</caption>
        <thead>
          <tr>
            ${isMixed && html`<th>variant</th>`}
            ${knobs.map((path) => html`<th key=${path} title=${path}>${path}</th>`)}
            <th class="number">runs</th>
            <th class="number">time per run</th>
          </tr>
        </thead>
        <tbody>
          ${cells.map(
            (cell) => html`<tr key=${cell.variant} title=${cell.variant}>
              ${isMixed && html`<td>${cell.of}</td>`}
              ${cell.values.map((value, i) => html`<td key=${knobs[i]}>${formatShortValue(value)}</td>`)}
              <td class="number">${search ? 1 : seeds}</td>
              <td class="number">
                ${
                  cell.errors.length
                    ? html`<ul class="form-errors">
                        ${cell.errors.map(({ path, message }) => html`<li><code>${path}</code> ${message}</li>`)}
                      </ul>`
                    : formatDurationRange(cell.seconds_low, cell.seconds_high)
                }
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  `;
}
