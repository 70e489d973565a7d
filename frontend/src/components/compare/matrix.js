/** The ablation matrix: variants by metrics, with intervals, differences from a baseline, and verdicts. */
import { html, useState } from '../../dom.js';
import { currentAddress, navigate } from '../../app/router.js';
import { mayChange, say, sayError } from '../../app/state.js';
import { copyText, download } from '../../app/actions.js';
import { usePostOnce } from '../../data/post_once.js';
import { useGet } from '../../data/resource.js';
import { findGroup } from '../../lib/runs/groups.js';
import {
  toCsv,
  toLatex,
  toMarkdown,
  describeColumn,
  columnTitle,
  estimateText,
  makeMatrixParams,
  nameRows,
  planText,
  reachedText,
  chooseSeeds,
  makeSentences,
  verdictText,
} from '../../lib/runs/matrix.js';
import { countVerdicts } from '../../lib/runs/summary.js';
import { plural } from '../../lib/text/format.js';
import { encode, list, text } from '../../lib/url.js';
import { ActionMenu, Confirm } from '../shared/overlay.js';
import { Select, Swatch } from '../shared/marks.js';
import { Failure, Skeleton } from '../shared/states.js';
import { ColumnMenu, PlanField } from './matrix_choice.js';
import { GroupBy } from './group_by.js';
import { SeedLinks, Verdicts } from './tables.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */
/** @typedef {{name: string, key: string}} CellAddress name of the row's group and key of the column */
/** @typedef {{baseline: string, columns: string[] | null, planned: number | null}} MatrixView */

/**
 * @param {{groups: Group[], grouping: string, runs: Api.RunItem[], view: MatrixView, change: (changes: object) =>
 *   void, available: string[], looks: Map<string, import('../../lib/colours.js').Look>}} props
 */
export function Matrix({ groups, grouping, runs, view, change, available, looks }) {
  const chosenBaseline = findGroup(view.baseline, groups);
  const baseline = chosenBaseline ?? groups[0];
  const params = makeMatrixParams(groups, view, baseline);
  const { data, error, reload } = useGet('/matrix', params, { live: ['run'], every: 5000 });
  const [pointedCell, setPointedCell] = useState(/** @type {CellAddress | null} */ (null));
  const [cellToQueue, setCellToQueue] = useState(/** @type {CellAddress | null} */ (null));
  const rows = data ? nameRows(groups, data) : [];
  const findRow = (/** @type {string | undefined} */ name) => rows.find((row) => row.name === name)?.row;
  return html`<section class="section matrix" aria-labelledby="matrix-title">
    <div class="section-head">
      <h2 id="matrix-title">Matrix</h2>
      ${
        view.baseline &&
        !chosenBaseline &&
        html`<span class="is-warning" role="note">
          The baseline ${view.baseline} is not among these runs; differences are from ${baseline.name}
        </span>`
      }
      <span class="spacer"></span>
      ${
        groups.length > 1 &&
        html`<${Select}
          label="baseline"
          value=${baseline.name}
          options=${groups.map(({ name }) => name)}
          onChange=${(/** @type {string} */ name) => change({ baseline: name })}
        />`
      }
      <${GroupBy}
        grouping=${grouping}
        runs=${runs}
        onChange=${(/** @type {string} */ next) => change({ by: next, hide: [], baseline: '' })}
      />
      <${PlanField} planned=${view.planned} change=${change} />
      <${ColumnMenu}
        columns=${view.columns ?? data?.columns.map(({ key }) => key) ?? []} available=${available} change=${change}
      />
      ${data && html`<${CopyMenu} rows=${rows} matrix=${data} />`}
    </div>
    ${data && html`<p class="quiet matrix-plan">${planText(data)}</p>`}
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Skeleton} rows=${groups.length + 1} label="Loading the matrix" />`}
    ${data?.notes.map((note) => html`<p class="quiet is-warning" role="note" key=${note}>${note}</p>`)}
    ${
      data &&
      html`<${Table}
        data=${data}
        rows=${rows}
        groups=${groups}
        baseline=${baseline.name}
        looks=${looks}
        pointedCell=${pointedCell}
        onPoint=${setPointedCell}
        onQueue=${setCellToQueue}
      />`
    }
    ${data && html`<${Details} data=${data} pointedCell=${pointedCell} row=${findRow(pointedCell?.name)} baseline=${baseline.name} />`}
    ${
      cellToQueue &&
      html`<${QueueSeeds}
        cell=${cellToQueue}
        group=${groups.find(({ name }) => name === cellToQueue.name)}
        baseline=${baseline}
        groups=${groups}
        moreSeeds=${lookup(findRow(cellToQueue.name)?.cells, cellToQueue.key)?.more_seeds ?? 0}
        onClose=${() => setCellToQueue(null)}
      />`
    }
  </section>`;
}

/**
 * @param {{data: Api.Matrix, rows: import('../../lib/runs/matrix.js').NamedRow[], groups: Group[], baseline: string,
 *   looks: Map<string, import('../../lib/colours.js').Look>, pointedCell: CellAddress | null,
 *   onPoint: (cell: CellAddress) => void, onQueue: (cell: CellAddress) => void}} props
 */
function Table({ data, rows, groups, baseline, looks, pointedCell, onPoint, onQueue }) {
  const findRuns = (/** @type {string} */ groupName) => groups.find((group) => group.name === groupName)?.runs ?? [];
  const canGrow = (/** @type {string} */ groupName) => startsAnew(findRuns(groupName)[0]);
  const ranges = new Map(
    data.columns.map(({ key }) => [key, findRange(rows.map(({ row }) => lookup(row.cells, key).sparkline))]),
  );
  return html`<div class="card table-scroll" tabindex="0" role="group" aria-label="Ablation matrix">
    <table class="table">
      <thead>
        <tr>
          <th scope="col">variant</th>
          <th scope="col">verdicts</th>
          ${data.columns.map(
            (column) => html`<th scope="col" class="number" key=${column.key}>
              ${columnTitle(column)}
              <span class="faint matrix-unit">${describeColumn(column, data)}</span>
            </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ({ name, row }) => html`<tr key=${name}>
            <th scope="row">
              <span class="summary-name">
                <${Swatch} look=${looks.get(name)} />
                ${name}
                ${name === baseline && rows.length > 1 && html`<span class="faint">baseline</span>`}
              </span>
              <div class="matrix-runs"><${SeedLinks} runs=${findRuns(name)} /></div>
            </th>
            <td><${Verdicts} counts=${countVerdicts(findRuns(name))} /></td>
            ${data.columns.map(
              ({ key }) => html`<td class="number" key=${key}>
                <${Cell}
                  cell=${lookup(row.cells, key)}
                  reached=${reachedText(lookup(row.cells, key), row)}
                  range=${ranges.get(key)}
                  isOpen=${pointedCell?.name === name && pointedCell.key === key}
                  onPoint=${() => onPoint({ name, key })}
                  onQueue=${canGrow(name) && canGrow(baseline) ? () => onQueue({ name, key }) : null}
                />
              </td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Returns whether a clone with another seed repeats the run, which a clone of a fork or imported run does not. */
const startsAnew = (/** @type {Api.RunItem | undefined} */ run) =>
  Boolean(run && run.fork_step === null && !run.origin);

/**
 * @param {{cell: Api.MatrixCell, reached: string, range: [number, number], isOpen: boolean, onPoint: () => void,
 *   onQueue: (() => void) | null}} props
 */
function Cell({ cell, reached, range, isOpen, onPoint, onQueue }) {
  const [mean, halfWidth] = estimateText(cell).split(' ± ');
  const { verdict, more_seeds: moreSeeds } = cell;
  return html`
    <button class="matrix-cell" aria-pressed=${isOpen} onClick=${onPoint} onMouseEnter=${onPoint} onFocus=${onPoint}>
      <${Sparkline} values=${cell.sparkline} range=${range} />
      <span class="estimate">
        ${mean}${' '}
        <span class="faint half">${halfWidth ? `± ${halfWidth}` : cell.n ? `n ${cell.n}` : ''}</span>
      </span>
      ${
        verdict !== 'baseline' &&
        html`<span class=${`delta matrix-${TONES[verdict] ?? 'open'}`}>
          ${verdictText(cell)}
        </span>`
      }
      ${reached && html`<span class="delta faint">${reached}</span>`}
    </button>
    ${
      mayChange.value &&
      onQueue &&
      moreSeeds !== null &&
      moreSeeds <= MAX_QUEUED &&
      html`<button class="button-quiet matrix-more" onClick=${onQueue} title="Queue these seeds">
        + ${plural(moreSeeds, 'seed')}
      </button>`
    }
  `;
}

/** Maximum number of missing seeds for which there is a button, because more would cost too much for one click. */
const MAX_QUEUED = 20;

/** @type {Record<string, string>} */
const TONES = { better: 'good', worse: 'bad', higher: 'clear', lower: 'clear', 'not comparable': 'warn' };

/** @param {(number | null)[][]} lines @returns {[number, number]} */
function findRange(lines) {
  const values = lines.flat().filter((value) => value !== null);
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
}

const SPARK = { width: 56, height: 16 };

/**
 * A small plot of the mean curve. All plots of a column share their axis.
 * @param {{values: (number | null)[], range: [number, number]}} props
 */
function Sparkline({ values, range: [low, high] }) {
  if (values.length < 2) return null;
  const toX = (/** @type {number} */ i) => ((i / (values.length - 1)) * SPARK.width).toFixed(1);
  const toY = (/** @type {number} */ value) =>
    (SPARK.height - 1 - ((value - low) / (high - low || 1)) * (SPARK.height - 2)).toFixed(1);
  const path = values.map((value, i) => {
    if (value === null) return '';
    const begins = i === 0 || values[i - 1] === null;
    return `${begins ? 'M' : 'L'}${toX(i)} ${toY(value)}`;
  });
  return html`<svg class="sparkline" width=${SPARK.width} height=${SPARK.height} aria-hidden="true">
    <path d=${path.join('')} fill="none" stroke="currentColor" />
  </svg>`;
}

/**
 * Sentences about the numbers of the hovered cell.
 * @param {{data: Api.Matrix, pointedCell: CellAddress | null, row: Api.MatrixRow | undefined, baseline: string}} props
 */
function Details({ data, pointedCell, row, baseline }) {
  const cell = pointedCell && lookup(row?.cells, pointedCell.key);
  const column = data.columns.find(({ key }) => key === pointedCell?.key);
  return html`<p class="matrix-details quiet" aria-live="polite">
    ${
      row && cell && column
        ? html`<b>${pointedCell?.name}, ${columnTitle(column)}.</b>${' '}
          ${makeSentences(cell, data, baseline, row).join(' ')}`
        : 'Choose a cell to read its numbers here. '
    }
    ${!cell && html`<a href="/help/comparing">What the words mean</a>`}
  </p>`;
}

/** @param {{rows: import('../../lib/runs/matrix.js').NamedRow[], matrix: Api.Matrix}} props */
function CopyMenu({ rows, matrix }) {
  const items = [
    { label: 'Copy as Markdown', run: () => copyText(toMarkdown(rows, matrix), 'Markdown') },
    { label: 'Copy as LaTeX', run: () => copyText(toLatex(rows, matrix), 'LaTeX') },
    { label: 'Copy as CSV', run: () => copyText(toCsv(rows, matrix), 'CSV') },
    { label: 'Save as CSV', run: () => download(toCsv(rows, matrix), 'matrix.csv') },
  ];
  return html`<${ActionMenu} items=${items} label="Copy" />`;
}

/**
 * The dialog that queues clones of the first run of the row and of the baseline with new seeds, and adds the clones to
 * the comparison.
 * @param {{cell: CellAddress, group: Group, baseline: Group, groups: Group[], moreSeeds: number,
 *   onClose: () => void}} props
 */
function QueueSeeds({ cell, group, baseline, groups, moreSeeds, onClose }) {
  const postOnce = usePostOnce();
  const clones = chooseSeeds(group.runs, baseline.runs, moreSeeds);
  const queue = async () => {
    try {
      const queuedRuns = await postOnce(
        clones.map(({ run, seed }) => ({ path: `/runs/${encodeURIComponent(run)}/clone`, body: { seed } })),
      );
      say(`${plural(queuedRuns.length, 'run')} queued`);
      const comparedRuns = groups.flatMap(({ runs }) => runs.map(({ id }) => id));
      const comparison = { runs: [...comparedRuns, ...queuedRuns.map(({ id }) => id)], query: '' };
      navigate(`/compare${encode(currentAddress.peek().search, comparison, { runs: list(), query: text() })}`);
    } catch (error) {
      sayError(error);
    }
    onClose();
  };
  const seeds = [...new Set(clones.map(({ seed }) => seed))].join(', ');
  return html`<${Confirm}
    title=${`Queue ${plural(moreSeeds, 'more seed')}?`}
    text=${
      `${plural(clones.length, 'run')}: seeds ${seeds} of ${cell.name} and ${baseline.name}. ` +
      'Seeds added after you looked at results end the plan: intervals become always-valid.'
    }
    confirm=${`Queue ${plural(clones.length, 'run')}`}
    onConfirm=${queue}
    onClose=${onClose}
  />`;
}
