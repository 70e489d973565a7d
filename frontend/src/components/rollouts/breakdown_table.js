/** The terms of a change: categories of completions with their means, shares and contributions. */
import { html } from '../../dom.js';
import { findMetricKind } from '../../lib/metrics.js';
import { FILTERS } from '../../lib/rollouts.js';
import { formatCount, formatPercent, formatValue } from '../../lib/text/format.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { Visible } from './text.js';
import { DataTable, makeNumberHeads } from '../shared/data_table.js';

const PARTS = [
  { title: 'by value', isNumber: true, help: 'Because the mean of its completions changed' },
  { title: 'by share', isNumber: true, help: 'Because its share of the completions changed' },
  ...makeNumberHeads('mean before', 'mean after', 'share before', 'share after'),
];

/** The meaning of a row. @type {Record<Api.BreakdownResponse['by'], string>} */
const ROWS = {
  prompt: 'a prompt',
  group: 'a group of completions',
  flag: 'the completions with these flags',
  length: 'the completions of these lengths',
  term: 'a term of the reward with its weight',
};

/** Largest absolute value of a part that is a rounding error of the sums. */
const ROUNDING = 1e-12;

/** @param {number} value */
function formatSigned(value) {
  const shownValue = Math.abs(value) < ROUNDING ? 0 : value;
  return `${shownValue > 0 ? '+' : ''}${formatValue(shownValue)}`;
}

/** @param {{answer: Api.BreakdownResponse}} props */
export function BreakdownTable({ answer }) {
  const { before, after, rows, change, completions, of, notes, by } = answer;
  const largestTotal = Math.max(...rows.map(({ total }) => Math.abs(total)), 1e-300);
  const isSum = by === 'term';
  return html`<div class="card run-part">
    <p>
      <b>${answer.metric}</b> went from <b>${formatValue(before.value)}</b> (${formatSteps(before)}) to
      <b>${' '}${formatValue(after.value)}</b> (${formatSteps(after)}): <b>${formatSigned(change)}</b>.
      <span class="quiet">${' '}${formatCount(completions)} of ${formatCount(of)} completions are attributed.</span>
    </p>
    ${notes.map((note) => html`<p class="quiet" key=${note}>${note}</p>`)}
    <p>
      Each row stands for ${ROWS[by]}, and its bar is what that row contributed; together they add up to the ${formatSigned(change)}.${' '}
      <${MovedMost} answer=${answer} />
    </p>
    <p class="faint breakdown-legend">
      <span><span class="breakdown-key is-fall"></span> lowered ${answer.metric}</span>
      <span><span class="breakdown-key is-rise"></span> raised it</span>
    </p>
    <${DataTable}
      name="Parts of the change"
      kind="table breakdown-table"
      heads=${[by, 'part of the change', ...makeNumberHeads('total'), 'read', ...(isSum ? [] : PARTS)]}
    >
      <tbody>
        ${rows.map(
          (row, i) => html`<tr key=${i} class=${`is-${row.kind}`}>
            <th scope="row"><${Label} row=${row} /></th>
            <td><${Bar} share=${row.total / largestTotal} /></td>
            <td class="number">${formatSigned(row.total)}</td>
            <td class="breakdown-read"><${ExampleLinks} run=${answer.run} row=${row} kind=${findMetricKind(answer.metric)} /></td>
            ${!isSum && html`<${Numbers} row=${row} />`}
          </tr>`,
        )}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">sum</th>
          <td></td>
          <td class="number">${formatSigned(rows.reduce((sum, { total }) => sum + total, 0))}</td>
          <td colspan=${isSum ? 1 : 7}></td>
        </tr>
      </tfoot>
    <//>
  </div>`;
}

/** The largest row in words, with its changes. @param {{answer: Api.BreakdownResponse}} props */
function MovedMost({ answer: { rows, by } }) {
  const [row] = rows.filter(({ kind }) => kind === 'category').sort((a, b) => Math.abs(b.total) - Math.abs(a.total));
  if (!row || Math.abs(row.total) < ROUNDING) return null;
  const { before, after, value, share } = row;
  const isByMean = Math.abs(value) > Math.abs(share) && before.mean !== null && after.mean !== null;
  const reason = isByMean
    ? `their mean went from ${formatValue(before.mean)} to ${formatValue(after.mean)}`
    : `${formatPercent(before.share, 1)} of the completions before, ${formatPercent(after.share, 1)} after`;
  return html`
    Most of it: <b>${row.prompt ? toOneLine(row.prompt) : row.label}</b>, ${formatSigned(row.total)}${by !== 'term' && `: ${reason}`}.
  `;
}

/** @param {Api.BreakdownWindow} window */
const formatSteps = ({ first, last }) => (first === last ? `step ${first}` : `steps ${first} to ${last}`);

/** @param {{row: Api.BreakdownRow}} props */
const Label = ({ row }) => html`
  ${row.prompt && html`<span class="breakdown-prompt"><${Visible} text=${toOneLine(row.prompt)} /></span>`}
  <span class=${row.prompt ? 'faint breakdown-label' : 'breakdown-label'}><${Visible} text=${row.label} /></span>
`;

/** @param {{row: Api.BreakdownRow}} props */
const Numbers = ({ row: { value, share, before, after, kind } }) => html`
  <td class="number">${formatSigned(value)}</td>
  <td class="number">${formatSigned(share)}</td>
  ${[before.mean, after.mean].map(
    (mean, i) => html`<td key=${i} class="number">${mean === null ? '–' : formatValue(mean)}</td>`,
  )}
  ${[before, after].map(
    (side, i) => html`<td key=${i} class="number" title=${`${formatCount(side.completions)} completions`}>
      ${kind === 'others' ? '–' : formatPercent(Math.max(0, side.share), 1)}
    </td>`,
  )}
`;

/** A bar, to the right for a rise and to the left for a fall. @param {{share: number}} props */
const Bar = ({ share }) => html`<span class="breakdown-bar" aria-hidden="true">
  <span
    class=${share < 0 ? 'is-fall' : 'is-rise'}
    style=${{ width: `${50 * Math.abs(share)}%`, [share < 0 ? 'right' : 'left']: '50%' }}
  ></span>
</span>`;

/** Completions of the row in each window. @param {{run: string, row: Api.BreakdownRow, kind: string}} props */
const ExampleLinks = ({ run, row, kind }) =>
  row.examples.map(
    ({ window, step, group }) => html`<a
      key=${window}
      title=${`Completions of step ${step}, ${window} the change`}
      href=${rolloutsAddress(run, {
        step,
        kind,
        group,
        filter: row.marks.filter((mark) => FILTERS.includes(mark)).join() || undefined,
      })}
    >
      step ${step}
    </a>`,
  );
