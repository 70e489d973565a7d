/** The report of an import: figures of the log, omitted data, and the metric of each column. */
import { html } from '../../dom.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { lookup } from '../../lib/lookup.js';

/** Figures of the first chosen run, and whether there are `several`. @param {{report: any, several: boolean}} props */
export function Report({ report, several }) {
  const { format_title: title, points, metrics, rows, first_step: first, last_step: last } = report;
  return html`
    <h2 class="import-title">${title}</h2>
    <p>
      ${plural(points, 'value')} of ${plural(metrics, 'metric')} in ${plural(rows, 'row')}, steps ${formatCount(first)}
      ${' '}to ${formatCount(last)}${several && ', in the first of the chosen runs'}.
      ${report.config_fields > 0 && ` Its config has ${plural(report.config_fields, 'field')}.`}
    </p>
    <${Notes} report=${report} />
  `;
}

/** Notes on the log and its invalid lines. */
function Notes({ report }) {
  const { bad_lines: badLines, bad_line_count: count, restarts, restart_count: restartCount, replaced, notes } = report;
  const sentences = [
    ...notes,
    ...(restartCount
      ? [
          `The step goes back ${plural(restartCount, 'time')}, first from ${restarts[0].before} to ${restarts[0].after}.`,
        ]
      : []),
    ...(replaced ? [`A later row of the same step replaced ${plural(replaced, 'value')}.`] : []),
  ];
  if (!sentences.length && !count) return null;
  return html`<ul class="import-notes">
    ${sentences.map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}
    ${
      count > 0 &&
      html`<li>
        <details class="more">
          <summary>${plural(count, 'line or value', 'lines or values')} left out</summary>
          <ul>
            ${badLines.map(
              ({ line, reason }, i) => html`<li key=${i}>
                ${line > 0 ? `line ${line} ` : ''}${reason}
              </li>`,
            )}
            ${count > badLines.length && html`<li class="faint">and ${formatCount(count - badLines.length)} more</li>`}
          </ul>
        </details>
      </li>`
    }
  </ul>`;
}

/**
 * The columns of the log. A typed name overrides the suggested one, and a column without a name is omitted.
 * @param {{report: any, mapping: Record<string, string>, onChange: (mapping: Record<string, string>) => void}} props
 */
export function ColumnTable({ report, mapping, onChange }) {
  const renameColumn = (column, guess, typedName) => {
    const { [column]: _, ...otherColumns } = mapping;
    onChange(typedName === guess ? otherColumns : { ...otherColumns, [column]: typedName });
  };
  return html`<div class="table-scroll" tabindex="0" role="group" aria-label="Columns of the log">
    <table class="table import-columns">
      <thead>
        <tr>
          <th>column of the log</th>
          <th>metric here</th>
          <th class="number">values</th>
          <th>reason</th>
        </tr>
      </thead>
      <tbody>
        ${report.columns.map(
          ({
            column,
            metric,
            points,
            reason,
            suggestion,
            hint,
          }) => html`<tr key=${column} class=${metric ? '' : 'is-left-out'}>
            <td><code>${column}</code></td>
            <td>
              <input
                class="field"
                aria-label=${`Metric of ${column}`}
                maxlength="128"
                placeholder="left out"
                value=${lookup(mapping, column) ?? metric}
                onInput=${(event) => renameColumn(column, metric, event.target.value.trim())}
              />
            </td>
            <td class="number">${formatCount(points)}</td>
            <td class="quiet">
              ${reason}
              ${
                suggestion &&
                lookup(mapping, column) !== suggestion &&
                html`${reason ? '; ' : ''}may be ${suggestion}: ${hint}${' '}
                  <button type="button" class="button-quiet" onClick=${() => renameColumn(column, metric, suggestion)}>
                    Call it ${suggestion}
                  </button>`
              }
            </td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
