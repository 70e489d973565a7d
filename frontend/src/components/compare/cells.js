/** Cells of an experiment: a metric's mean for each variant, shaded, with its seeds; they fill while runs train. */
import { html } from '../../dom.js';
import { aboutMetric } from '../../app/state.js';
import { cellsOf, gridOf } from '../../lib/runs/cells.js';
import { formatField } from '../../lib/runs/config.js';
import { VERDICTS, verdictText } from '../../lib/runs/verdicts.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Select, Status } from '../shared/marks.js';
import { Heads, numbers } from '../shared/data_table.js';

/** @typedef {import('../../lib/runs/cells.js').Cell} Cell */
/** @typedef {import('../../lib/runs/groups.js').Group} Group */

/** Minimum number of variants; fewer are compared by their curves. */
const FEWEST = 3;
const FIRST = ['eval/accuracy', 'reward/mean'];

/**
 * @param {{groups: Group[], available: string[], metric: string, onMetric: (metric: string) => void}} props
 *   `metric`: the chosen one; empty: held-out accuracy, else the reward
 */
export function CellGrid({ groups, available, metric, onMetric }) {
  if (groups.length < FEWEST) return null;
  const shown = available.includes(metric) ? metric : (FIRST.find((name) => available.includes(name)) ?? available[0]);
  const better = aboutMetric(shown ?? '')?.better;
  const grid = gridOf(cellsOf(groups, shown ?? '', better));
  const runs = groups.flatMap(({ runs: inside }) => inside);
  const done = runs.filter(({ status }) => status === 'finished').length;
  return html`<section class="section" aria-labelledby="compare-cells">
    <div class="section-head">
      <h2 id="compare-cells">Cells</h2>
      <span class="faint">
        mean over seeds of the last value; a stronger colour is ${better ? 'better' : 'higher'};${' '}
        ${done} of ${plural(runs.length, 'run')} finished
      </span>
      <span class="spacer"></span>
      ${
        available.length > 0 &&
        html`<${Select} label="metric" value=${shown} options=${available} onChange=${onMetric} />`
      }
    </div>
    <div class="card table-scroll" tabindex="0" role="group" aria-label="Cells">
      ${'columns' in grid ? html`<${MatrixTable} ...${grid} />` : html`<${ListTable} ...${grid} />`}
    </div>
  </section>`;
}

/** @param {import('../../lib/runs/cells.js').Matrix} props */
function MatrixTable({ rows, columns, cells }) {
  return html`<table class="table cell-grid">
    <${Heads}
      of=${[
        { title: html`<code>${rows.path}</code> \\ <code>${columns.path}</code>` },
        ...numbers(...columns.values.map(formatField)),
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

/** @param {import('../../lib/runs/cells.js').List} props */
function ListTable({ paths, rows }) {
  return html`<table class="table cell-grid">
    <${Heads} of=${['variant', ...paths, ...numbers('cell')]} />
    <tbody>
      ${rows.map(
        ({ values, cell }) => html`<tr key=${cell.group.name}>
          <th scope="row">${cell.group.name}</th>
          ${values.map((value, i) => html`<td key=${paths[i]}>${formatField(value)}</td>`)}
          <${CellData} cell=${cell} />
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** Mean, number of seeds that have a value, and a link to each run. @param {{cell: Cell}} props */
function CellData({ cell: { group, mean, n, heat } }) {
  return html`<td class="number cell" style=${{ '--heat': `${Math.round((heat ?? 0) * 32)}%` }} title=${group.name}>
    <span class="cell-mean">${mean === null ? '–' : formatValue(mean)}</span>
    <span class="cell-seeds">${n} of ${plural(group.runs.length, 'seed')}</span>
    <span class="cell-runs">
      ${group.runs.map((run) => html`<${SeedLink} key=${run.id} run=${run} />`)}
    </span>
  </td>`;
}

/** A run by its seed, with its status and, where its goal fell or never rose, the sign of its verdict. */
function SeedLink(/** @type {{run: Api.RunItem}} */ { run }) {
  const verdict = run.verdict ? verdictText(run) : '';
  const { icon, tone } = VERDICTS[run.verdict ?? 'inconclusive'];
  return html`<a
    href=${`/run/${run.id}`}
    title=${[run.name, `seed ${run.seed}`, run.status, verdict].filter(Boolean).join(', ')}
  >
    <${Status} run=${run} bare />
    ${
      ['warn', 'bad'].includes(tone) &&
      html`<span class=${`verdict-${tone}`}><${Icon} name=${icon} size=${12} label=${verdict} /></span>`
    }
    ${run.seed}
  </a>`;
}
