/** What will be launched: the number of runs, the cost, the warnings, and the same as YAML, command and link. */
import { html, useState } from '../../dom.js';
import { copyText } from '../../app/actions.js';
import { mayChange, unsentFiles, workers } from '../../app/state.js';
import { makeCommand } from '../../lib/launch/form.js';
import { describeSandboxGaps } from '../../lib/service/workers.js';
import { findChanges } from '../../lib/launch/layers.js';
import { toYaml } from '../../lib/text/yaml.js';
import { formatBytes, formatDurationRange, formatShort, plural } from '../../lib/text/format.js';
import { MemoryEstimates } from './memory.js';
import { countErrors } from './sweep.js';
import { Icon } from '../shared/icons.js';
import { Segments, Select } from '../shared/marks.js';
import { ForOperator } from '../shared/role.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('./validation.js').Verdict} Verdict */
/** @typedef {import('../../lib/launch/form.js').Form} Form */
/** @typedef {{seeds: number[], error: string}} Seeds */
/** @typedef {import('./sweep.js').Planned} Planned */
/**
 * @param {{form: Form, verdicts: Verdict[], seeds: {seeds: number[], error:
 *   string}, nameErrors: string[], planState: Planned | null,
 *   isLaunching: boolean, failure: import('../../data/api.js').ApiError | null, onLaunch: () => void,
 *   onApply: import('./memory.js').Apply, children: any}} props
 *   `children` are shown below the button; if there is a sweep, its plan `planState` replaces the verdicts
 */
export function LaunchBox({
  form,
  verdicts: variantVerdicts,
  seeds,
  nameErrors,
  planState,
  isLaunching,
  failure,
  onLaunch,
  onApply,
  children,
}) {
  const verdicts = planState ? [] : variantVerdicts;
  const count = planState ? (planState.plan?.runs ?? 0) : form.variants.length * seeds.seeds.length;
  const wrongCount =
    verdicts.reduce((sum, { errors }) => sum + errors.length, countErrors(planState)) +
    nameErrors.length +
    (seeds.error ? 1 : 0);
  const isChecking = planState?.checking || verdicts.some((verdict) => verdict.checking);
  const gaps = describeSandboxGaps(workers.value.items);
  const unsent = unsentFiles.value.length > 0;
  const isBlocked = isLaunching || wrongCount > 0 || unsent || count === 0 || planState?.checking === true;
  return html`<section class="card launch-box" aria-label="Launch">
    <div class="launch-bar">
    <${ForOperator}>
      <button
        class="button button-primary launch-go"
        disabled=${isBlocked}
        onClick=${onLaunch}
        aria-describedby="launch-state"
      >
        ${isLaunching ? 'Launching…' : planState?.plan?.search ? 'Launch search' : `Launch ${plural(count, 'run')}`}
      </button>
    <//>
    <p class="quiet" id="launch-state" role="status">
      ${unsent ? unsentText(unsentFiles.value) : stateText(form, seeds, wrongCount, isChecking, planState)}
    </p>
    <${Totals} verdicts=${variantVerdicts} seeds=${seeds.seeds.length} planState=${planState} />
    </div>
    ${
      !mayChange.value &&
      html`<p role="note">
        You are logged in as a viewer. You can fill in this form but not launch it; an operator can
        open the link below and launch it.
      </p>`
    }
    ${children}
    ${
      gaps &&
      html`<p class="formula-warning">
        <${Icon} name="warn" size=${12} /> ${gaps}
      </p>`
    }
    <${Warnings} form=${form} verdicts=${variantVerdicts} />
    <${ErrorList} form=${form} verdicts=${verdicts} nameErrors=${nameErrors} seeds=${seeds} />
    ${
      failure &&
      html`<div class="launch-failure" role="alert">
        <strong>${failure.title}</strong>
        ${failure.detail && html` ${failure.detail}`}
        ${
          failure.errors.length > 0 &&
          html`<ul>
            ${failure.errors.map(
              ({ path, message }) => html`<li>
                <code>${path}</code> ${message}
              </li>`,
            )}
          </ul>`
        }
      </div>`
    }
    ${!planState && html`<${Estimates} form=${form} verdicts=${verdicts} seeds=${seeds.seeds.length} />`}
    <${MemoryEstimates} names=${form.variants.map(({ name }) => name)} verdicts=${variantVerdicts} onApply=${onApply} />
  </section>`;
}

/** Returns each warning with the indexes of its variants. @param {Verdict[]} verdicts */
function collectWarnings(verdicts) {
  /** @type {Map<string, number[]>} */
  const warnings = new Map();
  verdicts.forEach(({ valid }, i) => {
    for (const warning of valid?.warnings ?? []) warnings.set(warning, [...(warnings.get(warning) ?? []), i]);
  });
  return [...warnings];
}

/**
 * The total cost of all runs, and the highest memory of a run.
 * @param {{verdicts: Verdict[], seeds: number, planState: Planned | null}} props
 */
function Totals({ verdicts, seeds, planState }) {
  const sum = (/** @type {'seconds_low' | 'seconds_high'} */ key) =>
    planState
      ? planState.plan?.[key]
      : verdicts.reduce((total, { valid }) => total + (valid?.estimates?.[key] ?? Number.NaN), 0) * seeds;
  const [low, high] = [sum('seconds_low'), sum('seconds_high')];
  const peaks = verdicts.flatMap(({ valid }) => valid?.memory?.peak_bytes ?? []);
  return html`<dl class="launch-totals">
    <div>
      <dt>${(planState?.plan?.runs ?? verdicts.length * seeds) > 1 ? 'time in sequence' : 'time'}</dt>
      <dd>${low && high ? formatDurationRange(low, high) : '–'}</dd>
    </div>
    <div>
      <dt>memory</dt>
      <dd>${peaks.length ? formatBytes(Math.max(...peaks)) : '–'}</dd>
    </div>
    <div>
      <dt>warnings</dt>
      <dd>${collectWarnings(verdicts).length}</dd>
    </div>
  </dl>`;
}

/** @param {{form: Form, verdicts: Verdict[]}} props */
const Warnings = ({ form, verdicts }) =>
  collectWarnings(verdicts).map(
    ([warning, indexes]) => html`<p class="formula-warning" key=${warning}>
      <${Icon} name="warn" size=${12} />${' '}
      ${form.variants.length > 1 && html`<strong>${indexes.map((i) => form.variants[i]?.name).join(', ')}:</strong> `}
      ${warning}
    </p>`,
  );

/** @param {string[]} files */
const unsentText = (files) =>
  `${files.join(', ')} ${files.length > 1 ? 'are' : 'is'} not uploaded yet: upload or cancel under Problems.`;

/**
 * @param {Form} form @param {Seeds} seeds @param {number} wrongCount @param {boolean} isChecking
 * @param {Planned | null} planState
 */
function stateText(form, seeds, wrongCount, isChecking, planState) {
  if (!form.variants.length) return 'Add a variant first.';
  if (wrongCount) return `${plural(wrongCount, 'field')} to fix before you can launch.`;
  if (planState?.plan?.search)
    return `At most ${plural(planState.plan.runs, 'run')} · ${isChecking ? 'checking …' : 'checked by the server'}`;
  const rows = planState ? plural(planState.plan?.cells.length ?? 0, 'cell') : plural(form.variants.length, 'variant');
  const size = `${rows} × ${plural(seeds.seeds.length, 'seed')}`;
  return `${size} · ${isChecking ? 'checking …' : 'checked by the server'}`;
}

/** @param {{form: Form, verdicts: Verdict[], nameErrors: string[], seeds: Seeds}} props */
function ErrorList({ form, verdicts, nameErrors, seeds }) {
  const rows = [
    ...nameErrors.map((message) => ['', '', message]),
    ...(seeds.error ? [['', 'seeds', seeds.error]] : []),
    ...verdicts.flatMap(({ errors }, i) => errors.map(({ path, message }) => [form.variants[i].name, path, message])),
  ];
  const problem = verdicts.find((verdict) => verdict.problem)?.problem;
  return html`
    ${
      rows.length > 0 &&
      html`<ul class="launch-errors">
        ${rows.map(
          ([variant, path, message]) => html`<li>
            ${
              variant &&
              html`
                <strong>${variant}</strong>${' '}
              `
            }
            ${
              path &&
              html`
                <code>${path}</code>${' '}
              `
            }
            ${message}
          </li>`,
        )}
      </ul>`
    }
    ${problem && html`<p class="launch-failure">Could not check the configs: ${problem.message}</p>`}
  `;
}

/**
 * Estimates by name, as they are shown in the table. `isSummed`: whether the sum over all runs is meaningful.
 * @typedef {(key: string) => number | null | undefined} Of the estimate of a name
 * @typedef {{key: string, title: string, text: (of: Of) => string, isSummed: boolean}} Cost
 * @type {Cost[]}
 */
const COSTS = [
  {
    key: 'seconds_low',
    title: 'time',
    text: (readTotal) => formatDurationRange(readTotal('seconds_low'), readTotal('seconds_high')),
    isSummed: true,
  },
  {
    key: 'tokens_at_most',
    title: 'max. tokens',
    text: (readTotal) => formatShort(readTotal('tokens_at_most')),
    isSummed: true,
  },
  {
    key: 'disk_bytes',
    title: 'max. records',
    text: (readTotal) => formatBytes(readTotal('disk_bytes')),
    isSummed: true,
  },
  {
    key: 'checkpoints',
    title: 'max. checkpoints',
    text: (readTotal) => formatShort(readTotal('checkpoints')),
    isSummed: true,
  },
  {
    key: 'checkpoint_bytes',
    title: 'checkpoint size',
    text: (readTotal) => formatBytes(readTotal('checkpoint_bytes')),
    isSummed: true,
  },
];

/** Returns the source of a run's estimated time. @param {Record<string, number | null>} estimates */
function describeSource({ like_runs: similarRuns, scaled_runs: scaled }) {
  if (similarRuns)
    return `${similarRuns > 1 ? `from the fastest to the slowest of ${similarRuns} similar runs` : 'as one similar run'}, ± 25 %`;
  return scaled
    ? `estimated from ${plural(scaled, 'run')} of this policy with other settings`
    : "estimated from the policy's size; no similar run has finished here yet";
}

/** @param {{form: Form, verdicts: Verdict[], seeds: number}} props */
function Estimates({ form, verdicts, seeds }) {
  const rows = verdicts.map(({ valid }, i) => ({
    name: form.variants[i].name,
    estimates: valid?.estimates ?? /** @type {Api.Validated['estimates']} */ ({}),
  }));
  const costs = COSTS.filter(({ key }) => rows.some(({ estimates }) => typeof lookup(estimates, key) === 'number'));
  if (!costs.length) return null;
  const isWhole = (/** @type {Cost} */ { key, isSummed }) =>
    isSummed && rows.every(({ estimates }) => typeof lookup(estimates, key) === 'number');
  const total = (/** @type {string} */ key) =>
    rows.reduce((sum, { estimates }) => sum + (lookup(estimates, key) ?? 0), 0) * seeds;
  const hasTotal = rows.length * seeds > 1 && costs.some(isWhole);
  const isWide = rows.length > 1 && hasTotal;
  const timedRows = rows.filter(({ estimates }) => typeof estimates.seconds_low === 'number');
  const sources = [...new Set(timedRows.map(({ estimates }) => describeSource(estimates)))];
  const listNames = (/** @type {string} */ source) =>
    timedRows
      .filter(({ estimates }) => describeSource(estimates) === source)
      .map(({ name }) => name)
      .join(', ');
  const table = (/** @type {typeof rows} */ columns, /** @type {boolean} */ withTotal) => html`
    <div class="table-scroll" tabindex="0" role="group" aria-label="Estimates">
      <table class="table estimates">
        <caption class="visually-hidden">Estimated cost of a run</caption>
        <thead>
          <tr>
            <th>${columns.length ? 'per run' : ''}</th>
            ${withTotal && html`<th class="number estimates-total">all ${rows.length * seeds} runs</th>`}
            ${columns.map(
              ({ name }) => html`<th class="number" key=${name} title=${name}>
                ${name}
              </th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${costs.map(
            (cost) => html`<tr key=${cost.key} class=${cost.key === 'seconds_low' ? 'estimates-range' : ''}>
              <th scope="row">${cost.title}</th>
              ${
                withTotal &&
                html`<td class="number estimates-total">
                  ${isWhole(cost) ? cost.text(total) : ''}
                </td>`
              }
              ${columns.map(
                ({ name, estimates }) => html`<td class="number" key=${name}>
                  ${cost.text((key) => lookup(estimates, key))}
                </td>`,
              )}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  `;
  return html`
    ${isWide ? table([], true) : table(rows, hasTotal)}
    ${isWide && html`<details><summary>Per run of each variant</summary>${table(rows, false)}</details>`}
    ${sources.map(
      (source) => html`<p class="form-help" key=${source}>
        Time${sources.length > 1 ? ` of ${listNames(source)}` : ''}: ${source}.
        Evaluations and checkpoints take additional time.${' '}
        ${rows.length * seeds > 1 && 'Runs that train at the same time are done sooner than in sequence.'}
      </p>`,
    )}
    ${
      costs.some(({ key }) => key === 'disk_bytes') &&
      html`<p class="form-help">
        Tokens and records are upper bounds: they assume completions of maximum length and every refill used.
      </p>`
    }
  `;
}

/** @type {{value: 'yaml'|'command'|'link', label: string}[]} */
const TABS = [
  { value: 'yaml', label: 'YAML' },
  { value: 'command', label: 'Command' },
  { value: 'link', label: 'Link' },
];

/** Returns the knobs of a sweep as comments, because a single config cannot contain them. @param {Form} form */
const sweepText = ({ sweep }) => (sweep?.knobs.length ? toYaml({ sweep }).replace(/^(?=.)/gm, '# ') : '');

/**
 * @param {{form: Form, verdicts: Verdict[], fulls: Api.Config[], defaults: Api.Config,
 *   requests: import('../../lib/launch/form.js').Request[]}} props
 */
export function ResultBox({ form, fulls, verdicts, defaults, requests }) {
  const [tab, setTab] = useState(TABS[0].value);
  const [variant, setVariant] = useState('');
  const [short, setShort] = useState(true);
  const index = Math.max(
    0,
    form.variants.findIndex(({ name }) => name === variant),
  );
  const config = verdicts[index]?.valid?.config ?? fulls[index];
  const text = {
    yaml: () => (config ? toYaml(short ? findChanges(defaults, config) : config) + sweepText(form) : ''),
    command: () => requests.map((request) => makeCommand(location.origin, request)).join('\n\n'),
    link: () => location.href,
  }[tab]();
  return html`<details class="card result">
    <summary>Share or export</summary>
    <div class="toolbar result-tools">
      <${Segments} label="Form of the result" value=${tab} options=${TABS} onChange=${setTab} />
      ${
        tab === 'yaml' &&
        form.variants.length > 1 &&
        html`<${Select}
          label=""
          value=${form.variants[index].name}
          options=${form.variants.map(({ name }) => name)}
          onChange=${setVariant}
        />`
      }
      ${
        tab === 'yaml' &&
        html`<label class="check">
          <input type="checkbox" checked=${short} onChange=${() => setShort(!short)} /> Only changes from the defaults
        </label>`
      }
      <span class="spacer"></span>
      <button
        type="button"
        class="button button-small"
        onClick=${() => copyText(text, TABS.find(({ value }) => value === tab)?.label ?? '')}
      >
        <${Icon} name="copy" size=${12} /> Copy
      </button>
    </div>
    <pre class="code" tabindex="0" aria-label=${tab}>
      ${text}
    </pre>
    ${
      tab === 'command' &&
      html`<p class="form-help">
        <code>GRPOLAB_TOKEN</code> is the operator's token; the file <code>token</code> in the state directory
        holds it.
      </p>`
    }
    ${
      tab === 'link' &&
      html`<p class="form-help">This link contains the whole form. Anyone who opens it sees the same form.</p>`
    }
  </details>`;
}
