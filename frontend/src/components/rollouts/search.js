/** Search in the completions of a run or of all runs of its experiment: results, counts by step, lift and labels. */
import { html, useEffect, useMemo, useRef, useState } from '../../dom.js';
import { fileAddress } from '../../data/api.js';
import { useQuery } from '../../app/router.js';
import { useKeys } from '../../app/keys.js';
import { useGet } from '../../data/resource.js';
import { choice, number, text } from '../../lib/url.js';
import { markPosition } from '../../lib/runs/query.js';
import { CommittedInput } from '../shared/committed_input.js';
import { Menu } from '../shared/overlay.js';
import { Select, Segments } from '../shared/marks.js';
import { Icon } from '../shared/icons.js';
import { Lift } from './lift.js';
import { SearchResults } from './search_results.js';
import { SearchSteps } from './search_steps.js';

export const SEARCH_SPEC = {
  q: text(),
  over: choice(['run', 'experiment']),
  from: number(/** @type {number | null} */ (null), { min: 0 }),
  to: number(/** @type {number | null} */ (null), { min: 0 }),
  kind: text(),
  right: choice(['', 'true', 'false']),
  flag: text(),
  label: text(),
  least: number(/** @type {number | null} */ (null)),
  most: number(/** @type {number | null} */ (null)),
  part: choice(['results', 'lift']),
  by: choice(['steps', 'correct', 'runs']),
  a: number(/** @type {number | null} */ (null), { min: 0 }),
  b: number(/** @type {number | null} */ (null), { min: 0 }),
  other: text(),
  open: text(),
};
/** @typedef {import('../../lib/url.js').Values<typeof SEARCH_SPEC>} SearchView */

const RIGHT = [
  { value: '', label: 'right or wrong' },
  { value: 'true', label: 'right' },
  { value: 'false', label: 'wrong' },
];
const KINDS = [
  { value: '', label: 'all' },
  { value: 'train', label: 'training' },
  { value: 'eval', label: 'evaluation' },
];

/** Returns the parameters of the service's searches. @param {Api.RunItem} run @param {SearchView} view */
function makeScope(run, view) {
  const isWide = view.over === 'experiment' && Boolean(run.experiment);
  return {
    runs: isWide ? undefined : run.id,
    experiment: isWide ? run.experiment : undefined,
    first_step: view.from ?? undefined,
    last_step: view.to ?? undefined,
    kind: view.kind || undefined,
    correct: view.right || undefined,
    flag: view.flag || undefined,
    label: view.label || undefined,
    min_reward: view.least ?? undefined,
    max_reward: view.most ?? undefined,
  };
}

/** @param {SearchView} view */
function filterLabel({ least, most, from, to, flag, label }) {
  const count = [least, most, from, to, flag || null, label || null].filter((value) => value !== null).length;
  return count ? `Filter (${count})` : 'Filter';
}

/** @param {{run: Api.RunItem}} props */
export function RolloutSearch({ run }) {
  const [view, change] = useQuery(SEARCH_SPEC);
  const scope = makeScope(run, view);
  const steps = useGet('/rollouts/search/steps', { ...scope, first_step: undefined, last_step: undefined, q: view.q });
  const labels = useGet('/rollouts/labels', { runs: scope.runs, experiment: scope.experiment });
  const queryError = steps.error?.errors.find(({ path, position }) => path === 'q' && position !== undefined);
  const export_ = (/** @type {'jsonl' | 'parquet'} */ file) =>
    fileAddress('/rollouts/search/export', { ...scope, q: view.q, file });
  return html`<div class="rollouts rollout-search">
    <${SearchField} query=${view.q} queryError=${queryError} onChange=${(/** @type {string} */ q) => change({ q, open: '' })} />
    <div class="toolbar rollout-tools">
      ${
        run.experiment &&
        html`<${Segments}
          label="Search in"
          value=${view.over}
          options=${[{ value: 'run', label: 'this run' }, { value: 'experiment', label: 'all runs of the experiment' }]}
          onChange=${(/** @type {string} */ over) => change({ over })}
        />`
      }
      <${Segments}
        label="Kind"
        value=${view.kind}
        options=${KINDS}
        onChange=${(/** @type {string} */ kind) => change({ kind })}
      />
      <${Select}
        label="correct"
        value=${view.right}
        options=${RIGHT}
        onChange=${(/** @type {string} */ right) => change({ right })}
      />
      <${Menu} label=${filterLabel(view)} title="Reward, steps, flag and label">
        <div class="rollout-menu">
      <${Bound} label="reward ≥" name="least" view=${view} change=${change} />
      <${Bound} label="reward ≤" name="most" view=${view} change=${change} />
      <${Bound} label="from step" name="from" view=${view} change=${change} />
      <${Bound} label="to step" name="to" view=${view} change=${change} />
      <label class="select">
        flag${' '}
        <${CommittedInput}
          class="field least"
          value=${view.flag}
          maxlength="64"
          onCommit=${(/** @type {string} */ flag) => change({ flag })}
        />
      </label>
      <${Select}
        label="label"
        value=${view.label}
        options=${labelOptions(labels.data?.items ?? [], view.label)}
        onChange=${(/** @type {string} */ label) => change({ label })}
      />
        </div>
      <//>
      <span class="spacer"></span>
      <a class="button-quiet" href=${export_('jsonl')} download>Export JSONL</a>
      <a class="button-quiet" href=${export_('parquet')} download>Parquet</a>
    </div>
    <${SearchSteps}
      resource=${steps}
      from=${view.from}
      to=${view.to}
      onWindow=${(/** @type {number | null} */ from, /** @type {number | null} */ to) => change({ from, to, open: '' })}
    />
    <div class="toolbar">
      <${Segments}
        label="Show"
        value=${view.part}
        options=${[
          { value: 'results', label: 'Completions' },
          { value: 'lift', label: 'Lift', title: 'Phrases that two sets of completions use differently often' },
        ]}
        onChange=${(/** @type {string} */ tab) => change({ part: tab })}
      />
    </div>
    ${
      view.part === 'lift'
        ? html`<${Lift} run=${run} scope=${scope} view=${view} change=${change} steps=${steps.data?.items ?? []} />`
        : !queryError &&
          html`<${SearchResults}
          scope=${scope}
          query=${view.q}
          openId=${view.open}
          onOpen=${(/** @type {string} */ open) => change({ open })}
          onLabels=${labels.reload}
        />`
    }
  </div>`;
}

/** @typedef {Event & {target: HTMLInputElement}} InputEvent */

/** @param {Api.LabelCount[]} items @param {string} chosen */
const labelOptions = (items, chosen) => [
  { value: '', label: 'any or none' },
  ...items.map(({ label, completions }) => ({ value: label, label: `${label} (${completions})` })),
  ...(chosen && !items.some(({ label }) => label === chosen) ? [{ value: chosen, label: `${chosen} (0)` }] : []),
];

/**
 * A field for an optional number of the view.
 * @param {{label: string, name: 'least' | 'most' | 'from' | 'to', view: SearchView, change: (changes: object) =>
 *   void}} props
 */
function Bound({ label, name, view, change }) {
  const handleCommit = (/** @type {string} */ content) =>
    change({ [name]: content === '' || !Number.isFinite(Number(content)) ? null : Number(content) });
  return html`<label class="select">
    ${label}${' '}
    <${CommittedInput} class="field least" inputmode="decimal" value=${view[name] ?? ''} onCommit=${handleCommit} />
  </label>`;
}

/**
 * @param {{query: string, queryError: import('../../data/api.js').FieldProblem | undefined, onChange: (q: string) =>
 *   void}} props
 */
function SearchField({ query, queryError, onChange }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [typedQuery, setTypedQuery] = useState(query);
  useEffect(() => setTypedQuery(query), [query]);
  useKeys(useMemo(() => ({ '/': { label: 'search in completions', run: () => input.current?.focus() } }), []));
  return html`<form
    class="query-field"
    role="search"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onChange(typedQuery.trim());
    }}
  >
    <label class="search">
      <${Icon} name="search" />
      <span class="visually-hidden">Search completions</span>
      <input
        class="field"
        type="search"
        autocomplete="off"
        spellcheck=${false}
        ref=${input}
        value=${typedQuery}
        aria-invalid=${Boolean(queryError)}
        placeholder=${'wait "let me check" verif* `\\boxed{` -sorry (/)'}
        title="Words, &quot;phrases&quot;, prefix*, \`exact strings\` and -not; Enter searches"
        onInput=${(/** @type {InputEvent} */ event) => setTypedQuery(event.target.value)}
      />
    </label>
    <a class="query-help" href="/help/searching" title="Searching completions" aria-label="Help on searching">?</a>
    ${
      queryError &&
      html`<div class="query-error" role="alert">
        <pre aria-hidden="true">${markPosition(query, queryError.position ?? 0)}</pre>
        ${queryError.message}
      </div>`
    }
  </form>`;
}
