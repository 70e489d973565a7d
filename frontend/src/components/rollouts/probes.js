/** The prompts of an evaluation at all its steps: solved, first solved, first lost, and a diff of two cells. */
import { html, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { useGet, useLoad } from '../../data/resource.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { diffWords } from '../../lib/text/diff.js';
import { Loaded, Skeleton } from '../shared/states.js';
import { Select } from '../shared/marks.js';
import { Visible } from './text.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {{run: string, step: number, prompt: string}} Cell */

/** @type {Record<string, {label: string, rank: ((row: Api.ProbeRow) => number) | null}>} */
const ORDERS = {
  recorded: { label: 'prompt', rank: null },
  forgotten: { label: 'forgotten first', rank: ({ forgotten }) => (forgotten ? 0 : 1) },
  solved: { label: 'first solved', rank: ({ first_solved: step }) => step ?? Infinity },
  lost: { label: 'first lost', rank: ({ first_lost: step }) => step ?? Infinity },
};

/** @param {{runs: string[], names: Record<string, string>, kind: string}} props */
export function Probes({ runs, names, kind }) {
  const matrix = useGet('/rollouts/probes', { run: runs, kind });
  const [order, setOrder] = useState('recorded');
  const [cells, setCells] = useState(/** @type {Cell[]} */ ([]));
  const pick = (/** @type {Cell} */ cell) => setCells((old) => [...old.slice(-1), cell]);
  return html`<${Loaded}
    resource=${matrix}
    skeleton=${html`<${Skeleton} rows=${10} />`}
    isEmpty=${({ items }) => !items.length}
    empty=${html`<p class="quiet">No prompt of this set has been evaluated yet.</p>`}
  >
    ${({ items, runs: columns, prompts, runs_left_out: hiddenRuns }) => html`
      <div class="toolbar">
        <${Select}
          label="sort prompts by"
          value=${order}
          options=${Object.entries(ORDERS).map(([value, { label }]) => ({ value, label }))}
          onChange=${setOrder}
        />
        <span class="quiet">
          ${hiddenRuns > 0 ? `${columns.length} runs of the experiment; ${hiddenRuns} more are not shown. ` : ''}
          ${items.length < prompts ? `${items.length} of ${prompts} prompts. ` : ''}Click two cells to compare their
          completions word by word.
        </span>
      </div>
      ${cells.length === 2 && html`<${Difference} cells=${cells} kind=${kind} />`}
      <div class="card probe-matrix" tabindex="0" role="region" aria-label="Prompts at the evaluations">
        <table>
          ${columns.map(
            (column, index) => html`<tbody key=${column.id}>
              <tr>
                <th scope="col">${lookup(names, column.id) ?? column.id}</th>
                <th scope="col">first solved</th>
                <th scope="col">first lost</th>
                ${column.steps.map((step) => html`<th scope="col" key=${step}>${step}</th>`)}
              </tr>
              ${sortProbes(items, index, order).map(
                (item) => html`<${Row}
                  key=${item.id}
                  item=${item}
                  row=${item.runs[index]}
                  column=${column}
                  cells=${cells}
                  onPick=${pick}
                />`,
              )}
            </tbody>`,
          )}
        </table>
      </div>
    `}
  <//>`;
}

/** @param {Api.ProbeItem[]} items @param {number} index @param {string} order */
function sortProbes(items, index, order) {
  const { rank } = lookup(ORDERS, order);
  return rank ? [...items].sort((a, b) => compare(rank(a.runs[index]), rank(b.runs[index]))) : items;
}

const compare = (/** @type {number} */ a, /** @type {number} */ b) => (a === b ? 0 : a < b ? -1 : 1);

/**
 * @param {{item: Api.ProbeItem, row: Api.ProbeRow, column: Api.ProbeRun, cells: Cell[], onPick: (cell: Cell) =>
 *   void}} props
 */
function Row({ item, row, column, cells, onPick }) {
  const isPicked = (/** @type {number} */ step) =>
    cells.some((cell) => cell.run === column.id && cell.step === step && cell.prompt === item.id);
  return html`<tr>
    <th scope="row" title=${toOneLine(item.prompt)}>
      <span class="group-prompt">${toOneLine(item.prompt) || toOneLine(item.id)}</span>
      ${row.forgotten && html`<span class="is-warning">forgotten</span>`}
    </th>
    <td class="number">${row.first_solved ?? '–'}</td>
    <td class="number">${row.first_lost ?? '–'}</td>
    ${column.steps.map((step, stepIndex) => {
      const rate = row.rates[stepIndex];
      const word = rate === null ? 'not evaluated' : `${Math.round(100 * rate)} % right`;
      return html`<td key=${step}>
        <button
          type="button"
          class=${`probe ${rate === null ? '' : rate >= 0.5 ? 'is-right' : 'is-wrong'}`}
          aria-label=${`step ${step}: ${word}`}
          title=${`step ${step}: ${word}${row.stored[stepIndex] || rate === null ? '' : '; its completions were not stored'}`}
          aria-pressed=${isPicked(step)}
          disabled=${!row.stored[stepIndex]}
          onClick=${() => onPick({ run: column.id, step, prompt: item.id })}
        >
          ${rate === null ? '·' : rate >= 0.5 ? '✓' : '✗'}
        </button>
      </td>`;
    })}
  </tr>`;
}

/** @param {{cells: Cell[], kind: string}} props */
function Difference({ cells, kind }) {
  const pair = useLoad(JSON.stringify([cells, kind]), (signal) =>
    Promise.all(cells.map((cell) => get('/rollouts', { ...cell, kind, limit: 1 }, signal))),
  );
  return html`<${Loaded} resource=${pair} skeleton=${html`<${Skeleton} rows=${4} />`}>
    ${(pages) => {
      const texts = pages.map((page) => page.items[0]?.completions[0]?.text ?? '');
      const changes = diffWords(texts[0], texts[1]);
      return html`<section class="card probe-diff" aria-label="Difference">
        <p class="quiet">
          First completion at step ${cells[0].step} (removed) and at step ${cells[1].step} (added)
        </p>
        ${
          changes
            ? html`<div class="model-text">
              ${changes.map(({ kind: change, text }, i) => {
                const content = html`<${Visible} text=${text} />`;
                if (change === 'same') return html`<span key=${i}>${content}</span>`;
                return change === 'old' ? html`<del key=${i}>${content}</del>` : html`<ins key=${i}>${content}</ins>`;
              })}
            </div>`
            : html`<p>These two completions differ in too many words to be compared.</p>`
        }
      </section>`;
    }}
  <//>`;
}
