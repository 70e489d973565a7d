/** Config differences between any number of runs: the fields, their meaning for the loss, and the common fields. */
import { html, useMemo } from '../../dom.js';
import { copyText } from '../../app/actions.js';
import { post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import {
  toMarkdown,
  makeConfigColumns,
  makeFieldRows,
  makeMeaningRows,
  findSameFields,
} from '../../lib/runs/differences.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { DataTable } from '../shared/data_table.js';

const MAX_COLUMNS = 24;
const MAX_EXPLAINED = 12;

/** @typedef {import('../../lib/runs/differences.js').Row} Row */

/** @param {{groups: import('../../lib/runs/groups.js').Group[]}} props */
export function ConfigDifferences({ groups }) {
  const { paths, columns } = useMemo(() => makeConfigColumns(groups), [groups]);
  const shownColumns = columns.slice(0, MAX_COLUMNS);
  const heads = shownColumns.map(({ names }) => names.join(', '));
  const rows = makeFieldRows(paths, shownColumns);
  const meanings = useMeanings(columns);
  const sharedFields = useMemo(() => findSameFields(columns[0]?.config, paths), [columns, paths]);
  const copy = () => copyText(toMarkdown(heads, [...rows, ...meanings]), 'Table');
  return html`<section class="section">
    <div class="section-head">
      <h2>Config differences</h2>
      <span class="faint">
        ${plural(paths.length, 'field')}, ignoring the seed
        ${
          shownColumns.length < columns.length &&
          `; the first ${shownColumns.length} of ${formatCount(columns.length)} distinct configs`
        }
      </span>
      <span class="spacer"></span>
      ${
        rows.length > 0 &&
        html`<button class="button button-small" onClick=${copy}>
          <${Icon} name="copy" size=${12} /> Copy as Markdown
        </button>`
      }
    </div>
    ${
      rows.length === 0
        ? html`<p class="faint">All runs have the same config except for the seed.</p>`
        : html`<${DataTable}
          name="Config differences"
          frame="card table-scroll"
          kind="table config-table"
          heads=${['field', ...heads]}
        >
          <tbody>
            ${rows.map(
              ({ label, texts }) => html`<tr key=${label}>
                <td><code>${label}</code></td>
                ${texts.map((text, i) => html`<td key=${i} title=${text}>${text}</td>`)}
              </tr>`,
            )}
          </tbody>
        <//>`
    }
    ${
      meanings.length > 0 &&
      html`<details class="more">
        <summary>
          What the differences mean for the loss${columns.length > MAX_EXPLAINED && `, of the first ${MAX_EXPLAINED}`}
        </summary>
        <${DataTable} name="In effect" frame="card table-scroll" kind="table config-table" heads=${['', ...heads]}>
          <tbody>
            ${meanings.map(
              ({ label, texts }) => html`<tr key=${label} class="config-meaning">
                <td>${label}</td>
                ${texts.map((text, i) => html`<td key=${i}>${text}</td>`)}
              </tr>`,
            )}
          </tbody>
        <//>
      </details>`
    }
    ${
      sharedFields.length > 0 &&
      html`<details class="more">
        <summary>${plural(sharedFields.length, 'field')} with the same value in all</summary>
        <table class="table config-table">
          <tbody>
            ${sharedFields.map(
              ({ path, text }) => html`<tr key=${path}>
                <td><code>${path}</code></td>
                <td title=${text}>${text}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </details>`
    }
  </section>`;
}

/**
 * Loads the service's explanations of the configs. A config that it cannot explain (of another trainer) has dashes.
 * @param {import('../../lib/runs/differences.js').Column[]} columns @returns {Row[]}
 */
function useMeanings(columns) {
  const configs = columns.slice(0, MAX_EXPLAINED).map(({ config }) => config);
  const key = configs.length > 1 && configs.every(Boolean) ? JSON.stringify(configs) : null;
  const { data } = useLoad(key, (signal) =>
    Promise.all(configs.map((config) => post('/validate', config, { signal }).catch(() => null))),
  );
  return data ? makeMeaningRows(data) : [];
}
