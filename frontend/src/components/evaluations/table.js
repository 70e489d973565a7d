/**
 * A table of suite results, with a row for each step, a column for each suite, intervals and links to the completions.
 */
import { html, useState } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import {
  makeEvaluationRows,
  listSuiteMetrics,
  metricTitle,
  sizeText,
  listSuites,
  suiteTitle,
} from '../../lib/evaluations.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { address } from '../../lib/url.js';
import { Segments } from '../shared/marks.js';
import { Loaded, Skeleton } from '../shared/states.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {Api.EvaluationItem} Item */

/**
 * @param {{runs: {id: string, name: string}[], empty: any, children?: any}} props `children`: tools next to the choice
 *   of the metric
 */
export function EvaluationTable({ runs, empty, children }) {
  const ids = runs.map(({ id }) => id);
  const results = useGet('/evaluations', { runs: ids.join() }, { live: ['points', 'run'], every: 5000 });
  return html`<${Loaded}
    resource=${results}
    skeleton=${html`<${Skeleton} rows=${6} />`}
    isEmpty=${({ items }) => !items.length}
    empty=${html`${children}${empty}`}
  >
    ${({ items, left_out: leftOut }) => html`
      <${Results} runs=${runs} items=${items}>${children}<//>
      ${leftOut > 0 && html`<p class="quiet">${plural(leftOut, 'older result')} not shown.</p>`}
    `}
  <//>`;
}

/** @param {{runs: {id: string, name: string}[], items: Item[], children?: any}} props */
function Results({ runs, items, children }) {
  const metrics = listSuiteMetrics(items);
  const [chosenMetric, setChosenMetric] = useState('accuracy');
  const metric = metrics.includes(chosenMetric) ? chosenMetric : metrics[0];
  const suites = listSuites(items);
  const rows = makeEvaluationRows(
    items,
    runs.map(({ id }) => id),
  );
  const names = new Map(runs.map(({ id, name }) => [id, name]));
  return html`
    <div class="toolbar">
      <${Segments}
        label="Metric"
        value=${metric}
        options=${metrics.map((name) => ({ value: name, label: metricTitle(name) }))}
        onChange=${setChosenMetric}
      />
      <span class="spacer"></span>
      ${children}
    </div>
    <div class="table-scroll" tabindex="0" role="group" aria-label="Results by step and suite">
      <table class="table evaluations">
        <thead>
          <tr>
            ${runs.length > 1 && html`<th>run</th>`}
            <th class="number">step</th>
            ${suites.map(
              (suite) => html`<th class="number" key=${suite}>
                ${suiteTitle(suite)}
                <div class="faint">${sizeText(items.filter((item) => item.suite === suite))}</div>
              </th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            ({ run, step, hasCheckpoint, itemBySuite }) => html`<tr key=${`${run} ${step}`}>
              ${runs.length > 1 && html`<td>${names.get(run)}</td>`}
              <td class="number">
                ${step} ${hasCheckpoint && html`<div class="faint">checkpoint</div>`}
              </td>
              ${suites.map((suite) => html`<${Cell} key=${suite} item=${itemBySuite.get(suite)} metric=${metric} />`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="quiet">
      Brackets: 95 % score interval over the prompts. Best: the highest accuracy on the suite in a run. Click
      a value to read its completions.
    </p>
  `;
}

/** @param {{item?: Item, metric: string}} props */
function Cell({ item, metric }) {
  const value = lookup(item?.values, metric);
  if (!item || value === undefined) return html`<td class="number faint">–</td>`;
  const interval = lookup(item.intervals, metric);
  const rollouts = address(`/run/${item.source}`, {
    tab: 'rollouts',
    kind: item.source_kind,
    step: item.source_step,
  });
  return html`<td class=${item.is_best ? 'number is-best' : 'number'}>
    ${
      item.is_best &&
      html`
        <span class="tag">best</span>${' '}
      `
    }
    <a href=${rollouts} title="Read the completions">${formatValue(value)}</a>
    ${interval && html`<div class="faint">[${formatValue(interval[0])}, ${formatValue(interval[1])}]</div>`}
  </td>`;
}
