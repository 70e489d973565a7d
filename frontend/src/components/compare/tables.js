/** Tables of Compare: numbers with their uncertainty, and the config fields that differ. */
import { html } from '../../dom.js';
import { SUMMARY_FIELDS, presentFields, summaryRows } from '../../lib/runs/summary.js';
import { groupOf } from '../../lib/runs/groups.js';
import { formatField, groupDifferences } from '../../lib/runs/config.js';
import { VERDICTS, verdictText, verdictTitle } from '../../lib/runs/verdicts.js';
import { formatShort, formatValue, plural } from '../../lib/text/format.js';
import { useGet } from '../../data/resource.js';
import { aboutMetric } from '../../app/state.js';
import { Select, Swatch } from '../shared/marks.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */
/** @typedef {ReturnType<typeof summaryRows>[number]['cells'][number]} SummaryCell */

/**
 * Accuracy at the largest number of tokens that every run has reached; the service reads it off the curves.
 * @param {string | null} experiment @param {Group[]} groups @param {string} baseline
 */
function useEqualTokens(experiment, groups, baseline) {
  const base = groups.find(({ name }) => name === baseline)?.variant;
  const { data } = useGet(
    experiment ? `/experiments/${encodeURIComponent(experiment)}/summary` : null,
    { metrics: 'eval/accuracy', baseline: base },
    { live: ['run'], every: 5000 },
  );
  const cells = new Map(
    (data?.variants ?? []).map(({ variant, metrics }) => [variant, metrics['eval/accuracy']?.equal_tokens]),
  );
  return data?.tokens
    ? { tokens: data.tokens, cellOf: (name) => fromService(cells.get(name), name === baseline) }
    : null;
}

/** The service's summary goes by variant: it fits only where each variant has one config. */
const isOneToOne = (/** @type {Group[]} */ groups) =>
  new Set(groups.map(({ variant }) => variant)).size === groups.length;

/** @param {{low?: number | null, high?: number | null}} interval */
const halfOf = ({ low, high }) => (typeof low !== 'number' || typeof high !== 'number' ? null : (high - low) / 2);

/** @param {Api.SpreadItem | null | undefined} cell @param {boolean} isBaseline */
function fromService(cell, isBaseline) {
  if (!cell) return { n: 0, mean: null, half: null, notFinite: 0, versus: null };
  const { n, mean, delta } = cell;
  return {
    n,
    mean,
    half: halfOf(cell),
    notFinite: 0,
    versus: delta && !isBaseline && { delta: delta.mean, half: halfOf(delta) },
  };
}

/**
 * @param {{groups: Group[], view: {baseline: string}, change: Function,
 *   looks: Map<string, import('../../lib/colours.js').Look>, experiment: string | null}} props
 */
export function SummaryTable({ groups, view, change, looks, experiment }) {
  const names = groups.map(({ name }) => name);
  const chosen = groupOf(view.baseline, groups);
  const baseline = chosen?.name ?? names[0];
  const rows = summaryRows(groups, baseline, aboutMetric);
  const fields = presentFields(rows);
  const equal = useEqualTokens(isOneToOne(groups) ? experiment : null, groups, baseline);
  if (!fields.length) return null;
  return html`<section class="section">
    <div class="section-head">
      <h2>Summary</h2>
      <span class="faint">
        mean ± half width of the 95 % interval over seeds (Student's t); last value of each run
      </span>
      ${
        view.baseline &&
        !chosen &&
        html`<span class="is-warning" role="note">
          The baseline ${view.baseline} is not among these runs; differences are to ${baseline}
        </span>`
      }
      <span class="spacer"></span>
      ${
        names.length > 1 &&
        html`<${Select}
          label="baseline"
          value=${baseline}
          options=${names}
          onChange=${(name) => change({ baseline: name })}
        />`
      }
    </div>
    <div class="card table-scroll">
      <table class="table">
        <thead>
          <tr>
            <th>variant</th>
            <th class="number">n</th>
            <th>verdicts</th>
            ${fields.map(
              (i) => html`<th class="number" key=${i}>
                ${SUMMARY_FIELDS[i].title}
              </th>`,
            )}
            ${equal && html`<th class="number">accuracy at ${formatShort(equal.tokens)} tokens</th>`}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) => html`<tr key=${row.name}>
              <td>
                <span class="summary-name">
                  <${Swatch} look=${looks.get(row.name)} />
                  ${row.name}
                  ${row.name === baseline && names.length > 1 && html`<span class="faint">baseline</span>`}
                </span>
              </td>
              <td class="number">
                ${row.runs}
                ${
                  row.unfinished > 0 &&
                  html`<span class="faint" title="Unfinished runs are included with their latest value">
                    ${' '}
                    (${row.unfinished} unfinished)
                  </span>`
                }
              </td>
              <td><${Verdicts} counts=${row.verdicts} /></td>
              ${fields.map(
                (i) => html`<td class="number" key=${i}>
                  <${Cell} cell=${row.cells[i]} runs=${row.runs} />
                </td>`,
              )}
              ${
                equal &&
                html`<td class="number">
                  <${Cell} cell=${equal.cellOf(row.name)} runs=${row.runs} />
                </td>`
              }
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}

/**
 * How many runs of a variant have each verdict; those that fell lead to their pages.
 * @param {{counts: ReturnType<typeof summaryRows>[number]['verdicts']}} props
 */
function Verdicts({ counts }) {
  if (!counts.length) return html`<span class="faint">–</span>`;
  return html`<ul class="verdicts">
    ${counts.map(
      ({ verdict, runs }) => html`<li key=${verdict}>
        <span class=${`verdict-${VERDICTS[verdict].tone}`}>${runs.length} ${verdictTitle(verdict)}</span>
        ${
          ['collapsed', 'declining'].includes(verdict) &&
          html`<span class="faint">
            ${' '}
            ${runs.map(
              (run) => html`<a key=${run.id} href=${`/run/${run.id}`} title=${`${run.name}, ${verdictText(run)}`}>
                seed ${run.seed}
              </a> `,
            )}
          </span>`
        }
      </li>`,
    )}
  </ul>`;
}

/** @param {{cell: Partial<SummaryCell>, runs: number}} props */
function Cell({ cell: { n, mean, half, notFinite, versus, apart = [] }, runs }) {
  if (!n) return html`<span class="faint">${notFinite ? `${notFinite} not finite` : '–'}</span>`;
  return html`
    <span class="estimate">
      ${formatValue(mean)}
      <span class="faint half">${half === null ? 'n 1' : `± ${formatValue(half)}`}</span>
    </span>
    <${Versus} versus=${versus} />
    ${
      apart.length > 0 &&
      html`<div class="delta is-warning" title=${`Scale differs from the baseline: ${apart.join(', ')}`}>
        not comparable
      </div>`
    }
    ${
      ((n > 1 && n < runs) || Boolean(notFinite)) &&
      html`<div class="delta faint">
        n ${n}
        ${notFinite ? `, ${notFinite} not finite` : ''}
      </div>`
    }
  `;
}

/**
 * The difference to the baseline. Bold only where its interval leaves zero out.
 * @param {{versus: {delta: number | null, half: number | null} | null}} props
 */
function Versus({ versus }) {
  if (!versus || versus.delta === null) return null;
  const { delta, half } = versus;
  const sign = delta > 0 ? '+' : '';
  if (half === null)
    return html`<div class="delta faint" title="One seed is not enough to estimate the uncertainty">
      ${sign}
      ${formatValue(delta)}, n 1
    </div>`;
  const isClear = Math.abs(delta) > half;
  return html`<div
    class=${isClear ? 'delta is-clear' : 'delta faint'}
    title=${
      isClear
        ? 'Significant: the 95 % interval of the difference excludes 0 (Welch)'
        : 'Not significant: the 95 % interval of the difference includes 0 (Welch)'
    }
  >
    ${sign}
    ${formatValue(delta)} ± ${formatValue(half)}
  </div>`;
}

/** @param {{groups: Group[]}} props */
export function ConfigDifferences({ groups }) {
  const rows = groupDifferences(
    groups.map(({ name, runs }) => ({ name, configs: runs.map(({ config }) => config ?? {}) })),
  );
  return html`<section class="section">
    <div class="section-head">
      <h2>Config differences</h2>
      <span class="faint">${plural(rows.length, 'field')}, ignoring the seed</span>
    </div>
    ${
      rows.length === 0
        ? html`<p class="faint">All runs have the same config except for the seed.</p>`
        : html`<div class="card table-scroll">
          <table class="table config-table">
            <thead>
              <tr>
                <th>field</th>
                ${groups.map(({ name }) => html`<th key=${name}>${name}</th>`)}
              </tr>
            </thead>
            <tbody>
              ${rows.map(
                ({ path, cells }) => html`<tr key=${path}>
                  <td>
                    <code>${path}</code>
                  </td>
                  ${cells.map((values, i) => html`<td key=${i}>${values.map(formatField).join(' | ')}</td>`)}
                </tr>`,
              )}
            </tbody>
          </table>
        </div>`
    }
  </section>`;
}
