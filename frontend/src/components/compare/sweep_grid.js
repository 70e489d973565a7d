/**
 * A sweep of two knobs as a grid, shaded by the mean of a metric for each pair of values. It fills while runs train.
 */
import { html } from '../../dom.js';
import { findMetricInfo } from '../../app/state.js';
import { makeCells, makeGrid } from '../../lib/runs/cells.js';
import { formatField } from '../../lib/runs/config.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { Select } from '../shared/marks.js';
import { Heads, makeNumberHeads } from '../shared/data_table.js';
import { SeedLinks } from './tables.js';

/** @typedef {import('../../lib/runs/cells.js').Cell} Cell */
/** @typedef {import('../../lib/runs/groups.js').Group} Group */

const DEFAULT_METRICS = ['eval/accuracy', 'reward/mean'];

/**
 * The grid, or nothing unless the groups differ in exactly two fields.
 * @param {{groups: Group[], available: string[], metric: string, onMetric: (metric: string) => void}} props
 *   `metric`: the chosen one; if it is empty, held-out accuracy, else the reward
 */
export function SweepGrid({ groups, available, metric, onMetric }) {
  const shownMetric = available.includes(metric)
    ? metric
    : (DEFAULT_METRICS.find((name) => available.includes(name)) ?? available[0]);
  const better = findMetricInfo(shownMetric ?? '')?.better;
  const grid = makeGrid(makeCells(groups, shownMetric ?? '', better));
  if (!grid) return null;
  const runs = groups.flatMap(({ runs: inside }) => inside);
  const finishedCount = runs.filter(({ status }) => status === 'finished').length;
  return html`<section class="section" aria-labelledby="compare-grid">
    <div class="section-head">
      <h2 id="compare-grid">Grid of the sweep</h2>
      <span class="faint">
        mean over seeds of the last value; a stronger colour is ${better ? 'better' : 'higher'};${' '}
        ${finishedCount} of ${plural(runs.length, 'run')} finished
      </span>
      <span class="spacer"></span>
      ${
        available.length > 0 &&
        html`<${Select} label="metric" value=${shownMetric} options=${available} onChange=${onMetric} />`
      }
    </div>
    <div class="card table-scroll" tabindex="0" role="group" aria-label="Grid of the sweep">
      <${GridTable} ...${grid} />
    </div>
  </section>`;
}

/** @param {import('../../lib/runs/cells.js').Grid} props */
function GridTable({ rows, columns, cells }) {
  return html`<table class="table cell-grid">
    <${Heads}
      heads=${[
        { title: html`<code>${rows.path}</code> \\ <code>${columns.path}</code>` },
        ...makeNumberHeads(...columns.values.map(formatField)),
      ]}
    />
    <tbody>
      ${rows.values.map(
        (value, i) => html`<tr>
          <th scope="row">${formatField(value)}</th>
          ${cells[i].map((cell) => (cell ? html`<${CellData} cell=${cell} />` : html`<td class="number faint">–</td>`))}
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** A cell with the mean, the number of seeds with a value, and a link to each run. @param {{cell: Cell}} props */
function CellData({ cell: { group, mean, n, heat } }) {
  return html`<td class="number cell" style=${{ '--heat': `${Math.round((heat ?? 0) * 32)}%` }} title=${group.name}>
    <span class="cell-mean">${mean === null ? '–' : formatValue(mean)}</span>
    <span class="cell-seeds">${n} of ${plural(group.runs.length, 'seed')}</span>
    <${SeedLinks} runs=${group.runs} />
  </td>`;
}
