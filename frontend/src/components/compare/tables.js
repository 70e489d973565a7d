/** Tables of Compare: verdicts of a variant's runs, and the config fields that differ. */
import { html } from '../../dom.js';
import { formatField, groupDifferences } from '../../lib/runs/config.js';
import { VERDICTS, verdictText, verdictTitle } from '../../lib/runs/verdicts.js';
import { plural } from '../../lib/text/format.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */

/**
 * How many runs of a variant have each verdict; those that fell lead to their pages.
 * @param {{counts: ReturnType<typeof import('../../lib/runs/summary.js').verdictCounts>}} props
 */
export function Verdicts({ counts }) {
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
