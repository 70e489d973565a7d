/** Lift: phrases that are more frequent in one of two sets of completions. A click searches for a phrase. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { formatCount, formatValue, plural } from '../../lib/text/format.js';
import { Empty, Loaded, Skeleton } from '../shared/states.js';
import { Segments, Select } from '../shared/marks.js';
import { Visible } from './text.js';
import { Heads } from '../shared/data_table.js';

const SETS = [
  { value: 'steps', label: 'two windows of steps' },
  { value: 'correct', label: 'wrong and right' },
  { value: 'runs', label: 'two runs' },
];

/** @typedef {import('./search.js').SearchView} SearchView */
/** @typedef {Event & {target: HTMLInputElement}} InputEvent */

/**
 * @param {{run: Api.RunItem, scope: import('./search_results.js').Scope, view: SearchView,
 *   change: (changes: object) => void, steps: Api.StepCount[]}} props
 */
export function Lift({ run, scope, view, change, steps }) {
  const siblings = useGet(run.experiment ? '/runs' : null, { experiment: run.experiment, limit: 200, sort: 'name' });
  const siblingRuns = (siblings.data?.items ?? []).filter(({ id }) => id !== run.id);
  const middle = steps[Math.floor(steps.length / 2)]?.step ?? 1;
  const stepA = view.a ?? Math.max(0, middle - 1);
  const stepB = view.b ?? middle;
  const sibling = siblingRuns.find(({ id }) => id === view.other) ?? siblingRuns[0];
  const isPossible = view.by === 'runs' ? Boolean(sibling) : steps.length > 0;
  const params = {
    ...scope,
    ...(view.by === 'runs' ? { runs: `${run.id},${sibling?.id}`, experiment: undefined } : {}),
    by: view.by,
    ...(view.by === 'steps' ? { a_last: stepA, b_first: stepB } : {}),
  };
  const resource = useGet(isPossible ? '/rollouts/lift' : null, params);
  const step = (/** @type {'a' | 'b'} */ name) => (/** @type {InputEvent} */ event) => {
    const value = Number(event.target.value);
    if (event.target.value.trim() && Number.isInteger(value) && value >= 0) change({ [name]: value });
  };
  return html`<section class="card lift" aria-label="Lift">
    <div class="toolbar">
      <${Segments}
        label="Compare"
        value=${view.by}
        options=${SETS}
        onChange=${(/** @type {string} */ by) => change({ by })}
      />
      ${
        view.by === 'steps' &&
        html`<label class="select">
            up to step <input class="field least" inputmode="numeric" value=${stepA} onChange=${step('a')} />
          </label>
          <label class="select">
            from step <input class="field least" inputmode="numeric" value=${stepB} onChange=${step('b')} />
          </label>`
      }
      ${
        view.by === 'runs' &&
        sibling &&
        html`<${Select}
          label="with"
          value=${sibling.id}
          options=${siblingRuns.map(({ id, name, variant, seed }) => ({
            value: id,
            label: `${name} · ${variant} s${seed}`,
          }))}
          onChange=${(/** @type {string} */ id) => change({ other: id })}
        />`
      }
    </div>
    ${
      isPossible
        ? html`<${Loaded} resource=${resource} skeleton=${html`<${Skeleton} rows=${8} />`}>
          ${(/** @type {Api.LiftResponse} */ data) => html`<${Tables} data=${data} change=${change} />`}
        <//>`
        : html`<${Empty} title="There is nothing to compare" />`
    }
  </section>`;
}

/** @param {{data: Api.LiftResponse, change: (changes: object) => void}} props */
function Tables({ data, change }) {
  const describeSide = (/** @type {Api.LiftSide} */ { label, completions, of }) =>
    `${label}: ${plural(completions, 'completion')} read, ${formatCount(of)} are stored in these steps`;
  return html`
    <p class="quiet">
      A, ${describeSide(data.a)}; B, ${describeSide(data.b)}. Counts are of completions that contain a phrase of one to
      four words.
    </p>
    <div class="lift-tables">
      <${Table} title="More in B" items=${data.items} data=${data} change=${change} />
      <${Table} title="More in A" items=${data.fell} data=${data} change=${change} />
    </div>
  `;
}

/**
 * @param {{title: string, items: Api.LiftItem[], data: Api.LiftResponse, change: (changes: object) => void}} props
 */
function Table({ title, items, data, change }) {
  const share = (/** @type {number} */ count, /** @type {number} */ total) =>
    `${count} (${formatValue(total ? (100 * count) / total : 0)} %)`;
  if (!items.length) return html`<${Empty} title=${`${title}: no phrase`} />`;
  return html`<table class="lift-table">
    <caption>${title}</caption>
    <${Heads} heads=${[
      'phrase',
      'A',
      'B',
      { title: 'log-odds', help: 'Log-odds of B against A' },
      { title: 'z', help: 'Log-odds over its standard deviation' },
    ]} />
    <tbody>
      ${items.map(
        (item) => html`<tr key=${item.phrase}>
          <td>
            <button
              type="button"
              class="button-quiet"
              title="Search for it"
              onClick=${() => change({ q: `"${item.phrase}"`, part: 'results' })}
            >
              <${Visible} text=${item.phrase} />
            </button>
          </td>
          <td class="number">${share(item.a, data.a.completions)}</td>
          <td class="number">${share(item.b, data.b.completions)}</td>
          <td class="number">${formatValue(item.log_odds)}</td>
          <td class="number">${formatValue(item.z)}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}
