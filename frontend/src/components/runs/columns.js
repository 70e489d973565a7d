/** Columns of the table of runs. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { lookup } from '../../lib/lookup.js';
import { makeRunField, isEvaluation } from '../../lib/runs/fields.js';
import { formatCount } from '../../lib/text/format.js';
import { renameRun } from '../../app/actions.js';
import { Icon } from '../shared/icons.js';
import { Progress, Status, Swatch, Tag, Verdict } from '../shared/marks.js';
import { ForOperator } from '../shared/role.js';

/**
 * Returns the columns. On a phone, the verdict follows the name, so that it is visible without scrolling.
 * @param {{fields: string[], isNarrow: boolean, looks: Map<string, import('../../lib/colours.js').Look>, isShown: (id: string) => boolean,
 *   toggleShown: (id: string) => void,
 *   isSelected: (id: string) => boolean, toggleSelected: (id: string, range: boolean) => void,
 *   allSelected: boolean, selectAll: (on:
 *   boolean) => void,
 *   put: (run: Api.RunItem) => void, runs: Api.RunItem[], renaming: string | null,
 *   setRenaming: (id: string | null) => void}} table
 * @typedef {Parameters<typeof runColumns>[0]} Table
 * @typedef {import('../shared/table.js').Column<Api.RunItem>} Column
 * @returns {Column[]}
 */
export function runColumns(table) {
  const fields = table.fields.filter((key) => key !== 'experiment');
  const first = fields.filter((key) => table.isNarrow && key === 'verdict');
  return [
    selectColumn(table),
    makeEyeColumn(table),
    makeNameColumn(table),
    ...first.map((key) => makeFieldColumn(key, table)),
    ...IDENTITY,
    makeStatusColumn(table),
    ...fields.filter((key) => !(table.isNarrow && key === 'verdict')).map((key) => makeFieldColumn(key, table)),
  ];
}

/** @param {Table} table @returns {Column} */
const selectColumn = ({ isSelected, toggleSelected, allSelected, selectAll }) => ({
  key: 'select',
  width: '32px',
  label: 'Selected',
  title: html`<label class="tick">
    <input
      type="checkbox"
      aria-label="Select all"
      checked=${allSelected}
      onChange=${(event) => selectAll(event.target.checked)}
    />
  </label>`,
  cell: ({ id, name }) => html`<label class="tick" title="Shift-click selects a range" onClick=${stay}>
    <input
      type="checkbox"
      aria-label=${`Select ${name}`}
      checked=${isSelected(id)}
      onClick=${(event) => {
        stay(event);
        toggleSelected(id, event.shiftKey);
      }}
    />
  </label>`,
});

/** @param {Table} table @returns {Column} */
const makeEyeColumn = ({ looks, isShown, toggleShown }) => ({
  key: 'eye',
  width: '36px',
  title: html`<span class="visually-hidden">In the charts</span>`,
  cell: ({ id, name }) => html`<button
    class="eye"
    aria-pressed=${isShown(id)}
    title=${isShown(id) ? 'Hide in the charts' : 'Show in the charts'}
    aria-label=${`Show ${name} in the charts`}
    onClick=${(event) => {
      stay(event);
      toggleShown(id);
    }}
  >
    ${isShown(id) ? html`<${Swatch} look=${looks.get(id)} />` : html`<${Icon} name="eyeOff" />`}
  </button>`,
});

/** @param {Table} table @returns {Column} */
const makeNameColumn = ({ put, renaming, setRenaming }) => ({
  key: 'name',
  width: 'minmax(152px, 2fr)',
  title: 'run',
  sort: 'name',
  cell: (run) => html`<${Name} run=${run} put=${put} isRenaming=${renaming === run.id} setRenaming=${setRenaming} />`,
});

/** @type {Column[]} */
const IDENTITY = [
  {
    key: 'experiment',
    width: 'minmax(112px, 1fr)',
    title: 'experiment',
    cell: ({ experiment, experiment_name: name }) =>
      experiment ? html`<a class="quiet-link" href=${`/experiment/${experiment}`} title=${name}>${name}</a>` : '–',
  },
  {
    key: 'variant',
    width: 'minmax(108px, 1fr)',
    title: 'variant',
    sort: 'variant',
    cell: ({ variant }) => html`<span title=${variant}>${variant || '–'}</span>`,
  },
  { key: 'seed', width: '48px', title: 'seed', sort: 'seed', number: true, cell: ({ seed }) => seed ?? '–' },
];

/** @param {Table} table @returns {Column} */
const makeStatusColumn = ({ runs }) => ({
  key: 'status',
  width: `${findStatusWidth(runs)}px`,
  title: 'status',
  sort: 'status',
  hint: 'Status, and the last step of all steps',
  cell: (run) => html`<span class="status-steps"><${Status} run=${run} /> <${Steps} run=${run} /></span>`,
});

/**
 * Returns the column's width, which fits the last step of the longest run, so that it is constant during training.
 * @param {Api.RunItem[]} runs
 */
function findStatusWidth(runs) {
  const isTraining = runs.some(({ status, last_step: last, steps }) => status !== 'queued' && last !== steps);
  const digits = formatCount(runs.reduce((largest, { steps }) => Math.max(largest, steps ?? 0), 0)).length;
  return Math.max(112, 98 + 7 * (isTraining ? 2 * digits + 1 : digits), runs.some(isEvaluation) ? 140 : 0);
}

/** @param {{run: Api.RunItem}} props */
function Steps({ run }) {
  const { status, last_step: lastStep, steps } = run;
  if (isEvaluation(run))
    return html`<span class="faint" title="Evaluates a policy without training it">
      ${run.is_check ? 'check' : 'evaluation'}
    </span>`;
  if (lastStep === steps) return html`<span class="faint">${formatCount(steps)}</span>`;
  return html`<span class="steps">
    <span>
      ${formatCount(lastStep ?? 0)}
      <span class="faint">/${formatCount(steps)}</span>
    </span>
    ${status === 'running' && html`<${Progress} doneSteps=${lastStep} all=${steps} />`}
  </span>`;
}

/** @param {string} key @param {Table} table @returns {Column} */
function makeFieldColumn(key, table) {
  const field = makeRunField(key);
  return {
    key,
    width:
      lookup(WIDTHS, key)?.(table) ??
      (field.number ? `${Math.max(72, 16 + 7 * field.title.length)}px` : 'minmax(128px, 1fr)'),
    title: field.title,
    hint: key,
    number: field.number,
    sort: field.sort,
    cell: lookup(CELLS, key) ?? ((run) => html`<${Value} text=${field.text(run)} step=${field.age?.(run)} />`),
  };
}

/**
 * Widths of columns. The verdict's column is narrow while no run has a verdict.
 * @type {Record<string, (table: Table) => string>}
 */
const WIDTHS = {
  verdict: ({ runs }) => (runs.some((run) => run.verdict) ? '144px' : '64px'),
  onset: () => '60px',
  changes: () => 'minmax(112px, 2fr)',
  created: () => '88px',
  duration: () => '88px',
};

/** Cells with more than text. @type {Record<string, Column['cell']>} */
const CELLS = {
  tags: ({ tags }) => tags.map((tag) => html`<${Tag} key=${tag}>${tag}<//>`),
  verdict: (run) => html`<${Verdict} run=${run} />`,
};

/**
 * The text of a field, with the step if the value is older than the run's last step.
 * @param {{text: string, step?: number}} props
 */
const Value = ({ text, step }) =>
  step === undefined
    ? html`<span title=${text}>${text}</span>`
    : html`<span class="faint" title=${`${text}, of step ${step}; not recorded since then`}>${text}</span>`;

const stay = (/** @type {Event} */ event) => event.stopPropagation();

/**
 * @param {{run: Api.RunItem, put: (run: Api.RunItem) => void, isRenaming: boolean, setRenaming: (id: string | null) =>
 *   void}} props
 */
function Name({ run, put, isRenaming, setRenaming }) {
  if (isRenaming) return html`<${Rename} run=${run} put=${put} onDone=${() => setRenaming(null)} />`;
  return html`<span class="run-cell">
    <a
      href=${`/run/${run.id}`}
      title=${[run.name, run.experiment_name && `experiment ${run.experiment_name}`, ...(run.tags ?? [])]
        .filter(Boolean)
        .join(', ')}
    >
      ${run.name}
    </a>
    ${run.tags?.map((tag) => html`<${Tag} key=${tag}>${tag}<//>`)}
    <${ForOperator}>
      <button
        class="button-icon run-rename"
        title="Rename (r)"
        aria-label=${`Rename ${run.name}`}
        onClick=${(event) => {
          stay(event);
          setRenaming(run.id);
        }}
      >
        <${Icon} name="pencil" size=${12} />
      </button>
    <//>
  </span>`;
}

/** @param {{run: Api.RunItem, put: (run: Api.RunItem) => void, onDone: () => void}} props */
function Rename({ run, put, onDone }) {
  const [name, setName] = useState(run.name);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => input.current?.select(), []);
  const save = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    onDone();
    if (name.trim() && name.trim() !== run.name) await renameRun(run.id, name.trim(), put);
  };
  return html`<form onSubmit=${save}>
    <input
      class="field rename-field"
      aria-label="New name"
      pattern="[\\s\\S]{0,200}"
      title="At most 200 characters"
      value=${name}
      ref=${input}
      onInput=${(event) => setName(event.target.value)}
      onBlur=${onDone}
      onKeyDown=${(event) => event.key === 'Escape' && onDone()}
      onClick=${stay}
    />
  </form>`;
}
