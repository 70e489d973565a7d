/** A prompt in columns: its completions at other steps of the run and in other runs of the experiment. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { MAX_COLUMNS, readColumn, chooseUsualColumns, writeColumn } from '../../lib/columns.js';
import { groupFacts, sortCards } from '../../lib/rollouts.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { formatValue } from '../../lib/text/format.js';
import { IconButton } from '../shared/icons.js';
import { Select } from '../shared/marks.js';
import { Loaded, Skeleton } from '../shared/states.js';
import { RolloutCard } from './card.js';
import { GroupHead } from './group.js';
import { formatSibling } from './siblings.js';

/**
 * @typedef {import('../../lib/columns.js').Column} Column
 * @typedef {{group: Api.GroupItem, order: string, by: import('./card.js').Colour, full: boolean}} Look `group`: the
 *   group in view
 */

/** Number of completions of a column unless all are requested. */
const COLLAPSED_COMPLETIONS = 2;

/** Returns the steps at which a prompt is stored. @param {Api.StepItem[]} items @param {string} kind */
const listSteps = (items, kind) => items.filter((item) => item.kind === kind).map(({ step }) => step);

/**
 * @param {{group: Api.GroupItem, beside: string[], siblings: Api.RunItem[], order: string, by:
 *   import('./card.js').Colour, full: boolean, onChange: (changes: {beside?: string[] | null, full?: boolean}) =>
 *   void}} props `beside`: columns as they are written in the address, or none for the default columns
 */
export function PromptColumns({ group, beside, siblings, order, by, full, onChange }) {
  const stepsResource = useGet('/rollouts/steps', { run: group.run, prompt: group.prompt_id });
  return html`<section class="group" aria-label="Comparison of a prompt">
    <${GroupHead} group=${group} />
    <${Loaded} resource=${stepsResource} skeleton=${html`<${Skeleton} rows=${8} />`}>
      ${({ items }) => {
        const steps = listSteps(items, group.kind);
        const otherRuns = siblings.filter(({ id }) => id !== group.run);
        const namedColumns = beside.map(readColumn).filter((column) => column !== null);
        const columns = namedColumns.length
          ? namedColumns
          : chooseUsualColumns(
              steps,
              group.step,
              otherRuns.map(({ id }) => id),
            );
        const choose = (/** @type {Column[]} */ next) =>
          onChange({ beside: next.length ? next.map(writeColumn) : null });
        const look = { group, order, by, full };
        return html`
          <div class="toolbar">
            <${AddColumn}
              steps=${steps.filter((step) => step !== group.step)}
              runs=${otherRuns}
              isFull=${columns.length >= MAX_COLUMNS}
              onAdd=${(/** @type {string} */ text) => choose([...columns, readColumn(text) ?? { run: '', step: null }])}
            />
            ${steps.length < 2 && html`<span class="quiet">This run stored the prompt at step ${group.step} alone.</span>`}
            ${!otherRuns.length && html`<span class="quiet">The experiment has no other run.</span>`}
            <span class="spacer"></span>
            <button type="button" class="button-quiet" aria-pressed=${full} onClick=${() => onChange({ full: !full })}>
              All completions
            </button>
          </div>
          <div class="prompt-columns" tabindex="0" role="region" aria-label="Columns">
            <${GroupColumn} title=${`step ${group.step}, in view`} shownGroup=${group} look=${look} />
            ${columns.map(
              (column, index) => html`<${OtherColumn}
                key=${writeColumn(column)}
                column=${column}
                run=${siblings.find(({ id }) => id === column.run)}
                look=${look}
                onStep=${(/** @type {number} */ step) => choose(columns.with(index, { ...column, step }))}
                onRemove=${() => choose(columns.filter((other) => other !== column))}
              />`,
            )}
          </div>
        `;
      }}
    <//>
  </section>`;
}

/**
 * @param {{steps: number[], runs: Api.RunItem[], isFull: boolean, onAdd: (column: string) => void}} props
 */
function AddColumn({ steps, runs, isFull, onAdd }) {
  if (isFull) return html`<span class="quiet">${MAX_COLUMNS} columns at most</span>`;
  const options = [
    { value: '', label: 'a step or a run' },
    ...steps.map((step) => ({ value: writeColumn({ run: '', step }), label: `step ${step}` })),
    ...runs.map((run) => ({ value: writeColumn({ run: run.id, step: null }), label: formatSibling(run) })),
  ];
  return html`<${Select}
    label="add"
    value=""
    options=${options}
    onChange=${(/** @type {string} */ column) => column && onAdd(column)}
  />`;
}

/**
 * The prompt at another step or in another run, or the steps at which it is stored if it is missing there.
 * @param {{column: Column, run: Api.RunItem | undefined, look: Look, onStep: (step: number) => void, onRemove: () =>
 *   void}} props `run`: only if it is not the run in view
 */
function OtherColumn({ column, run, look, onStep, onRemove }) {
  const { kind, prompt_id: prompt } = look.group;
  const id = column.run || look.group.run;
  const step = column.step ?? look.group.step;
  const groups = useGet('/rollouts', { run: id, step, kind, prompt, limit: 1 });
  const stepsResource = useGet('/rollouts/steps', { run: id, prompt });
  const steps = listSteps(stepsResource.data?.items ?? [], kind);
  const title = run ? run.name : `step ${step}`;
  const head = html`<header class="prompt-column-head">
    <a href=${rolloutsAddress(id, { step, kind, group: groups.data?.items[0]?.id })} title=${run && formatSibling(run)}>
      ${title}
    </a>
    ${
      run &&
      html`<${Select}
        label="step"
        value=${String(step)}
        options=${[...new Set([...steps, step])].sort((a, b) => a - b).map(String)}
        onChange=${(/** @type {string} */ next) => onStep(Number(next))}
      />`
    }
    <span class="spacer"></span>
    <${IconButton} icon="cross" size=${12} label=${`Remove ${title}`} onClick=${onRemove} />
  </header>`;
  return html`<section class="prompt-column" aria-label=${title}>
    ${head}
    <${Loaded} resource=${groups} skeleton=${html`<${Skeleton} rows=${6} />`}>
      ${({ items }) =>
        items.length
          ? html`<${Cards} shownGroup=${items[0]} look=${look} />`
          : html`<p class="quiet">${describeAbsence(steps, step)}</p>`}
    <//>
  </section>`;
}

/** @param {number[]} steps `steps`: those with the prompt @param {number} step */
const describeAbsence = (steps, step) =>
  steps.length
    ? `The prompt is not stored at step ${step}, but at ${steps.slice(0, 8).join(', ')}${steps.length > 8 ? ' …' : ''}.`
    : 'This run has no stored completion of the prompt.';

/** @param {{title: string, shownGroup: Api.GroupItem, look: Look}} props */
const GroupColumn = ({ title, shownGroup, look }) => html`<section class="prompt-column" aria-label=${title}>
  <header class="prompt-column-head"><b>${title}</b></header>
  <${Cards} shownGroup=${shownGroup} look=${look} />
</section>`;

/** @param {{shownGroup: Api.GroupItem, look: Look}} props */
function Cards({ shownGroup, look: { order, by, full } }) {
  const facts = groupFacts(shownGroup);
  const cards = sortCards(
    shownGroup.completions.map((completion, index) => ({ completion, index })),
    order,
  );
  return html`
    <p class="quiet">${facts.rightCount} of ${facts.size} correct, reward ${formatValue(facts.mean)}</p>
    ${cards.slice(0, full ? undefined : COLLAPSED_COMPLETIONS).map(
      ({ completion, index }) => html`<${RolloutCard}
          key=${completion.id}
          group=${shownGroup}
          completion=${completion}
          index=${index}
          colourBy=${by}
        />`,
    )}
  `;
}
