/** The prompt atlas: training prompts with their pass rates over time, and a new run on a selection of them. */
import { html, useState } from '../../dom.js';
import { fileAddress, upload } from '../../data/api.js';
import { useGet } from '../../data/resource.js';
import { navigate } from '../../app/router.js';
import { sayError } from '../../app/state.js';
import { breakdownAddress } from '../../lib/breakdown.js';
import { address } from '../../lib/url.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { Empty, Loaded, Skeleton } from '../shared/states.js';
import { Select } from '../shared/marks.js';
import { ForOperator } from '../shared/role.js';
import { lookup } from '../../lib/lookup.js';
import { Heads } from '../shared/data_table.js';

const STATES = ['never', 'always', 'lost', 'learned', 'mixed', 'ungraded'];
/** @type {Record<string, string>} */
const ORDERS = {
  drift: 'pass rate that fell most',
  '-drift': 'pass rate that rose most',
  rate: 'lowest pass rate',
  '-rate': 'highest pass rate',
  '-visits': 'sampled most often',
};
const PAGE = 100;
const MAX_PROMPTS = 500;

/** @param {{run: string, name: string}} props */
export function PromptAtlas({ run, name }) {
  const [state, setState] = useState('');
  const [sort, setSort] = useState('drift');
  const [limit, setLimit] = useState(PAGE);
  const params = { run, state: state || undefined, sort };
  const isOfDrift = sort.endsWith('drift');
  const atlas = useGet('/rollouts/prompts', { ...params, limit });
  return html`<${Loaded} resource=${atlas} skeleton=${html`<${Skeleton} rows=${10} />`}>
    ${(data) => html`
      <div class="toolbar">
        <${Select}
          label="show"
          value=${state}
          options=${[
            { value: '', label: 'all prompts' },
            ...STATES.map((value) => ({ value, label: `${value} (${lookup(data.counts, value) ?? 0})` })),
          ]}
          onChange=${(/** @type {string} */ value) => setState(value)}
        />
        <${Select}
          label="sort by"
          value=${sort}
          options=${Object.entries(ORDERS).map(([value, label]) => ({ value, label }))}
          onChange=${setSort}
        />
        <span class="quiet">
          ${plural(data.matching, 'prompt')}, steps ${data.first_step} to ${data.last_step}
        </span>
        <span class="spacer"></span>
        <${ForOperator}>
          <${LaunchOn} params=${params} name=${name} count=${data.matching} />
        <//>
      </div>
      ${
        data.items.length && isOfDrift && data.items[0].drift === null
          ? html`<${NothingToCompare} run=${run} onSort=${setSort} />`
          : data.items.length
            ? html`<div class="card probe-matrix" tabindex="0" role="region" aria-label="Prompts over time">
            <table>
              <${Heads} heads=${['prompt', 'state', 'pass rate', 'first', 'last', 'drift', 'groups', 'over time']} />
              <tbody>${data.items.map((item) => html`<${Row} key=${item.id} item=${item} />`)}</tbody>
            </table>
          </div>`
            : html`<${Empty} title="No matching prompts" />`
      }
      ${
        !(isOfDrift && data.items[0]?.drift === null) &&
        data.items.length < Math.min(data.matching, MAX_PROMPTS) &&
        html`<button type="button" class="button" onClick=${() => setLimit(MAX_PROMPTS)}>Show more</button>`
      }
    `}
  <//>`;
}

/**
 * The notice that no prompt has pass rates in two parts of the run.
 * @param {{run: string, onSort: (sort: string) => void}} props
 */
const NothingToCompare = ({ run, onSort }) => html`<${Empty}
  title="Nothing to compare: each prompt was sampled in one part of the run only"
  action=${html`<a class="button" href=${breakdownAddress(run, 'reward/mean', { split: 'flag' })}>
      Compare flags instead of prompts
    </a>
    <button type="button" class="button-quiet" onClick=${() => onSort('rate')}>Lowest pass rate first</button>`}
/>`;

/** @param {{item: Api.PromptItem}} props */
function Row({ item }) {
  return html`<tr>
    <th scope="row" title=${toOneLine(item.prompt)}>
      <span class="group-prompt">${toOneLine(item.prompt) || toOneLine(item.id)}</span>
    </th>
    <td>${item.state}</td>
    ${[item.rate, item.first, item.last, item.drift].map(
      (value, i) => html`<td key=${i} class="number">${formatValue(value)}</td>`,
    )}
    <td class="number">${item.groups}</td>
    <td><${Sparkline} values=${item.windows} /></td>
  </tr>`;
}

/**
 * Pass rates of the parts of the run, with gaps where the prompt was not sampled.
 * @param {{values: (number | null)[]}} props
 */
function Sparkline({ values }) {
  return html`<svg
    class="sparkbars"
    viewBox="0 0 80 20"
    width="80"
    height="20"
    role="img"
    aria-label="Pass rate over time"
  >
    ${values.map(
      (value, i) =>
        value !== null &&
        html`<rect key=${i} x=${i * 10} y=${19 - 18 * value} width="8" height=${1 + 18 * value}></rect>`,
    )}
  </svg>`;
}

/** @param {{params: {run: string, state?: string, sort: string}, name: string, count: number}} props */
function LaunchOn({ params, name, count }) {
  const [isBusy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    try {
      const rows = await fetch(fileAddress('/rollouts/prompts.jsonl', params));
      if (!rows.ok) throw new Error('the prompts could not be read; try again');
      const label = `${params.state || 'all'} prompts of ${name}`.slice(0, 180);
      const file = new File([await rows.blob()], `${label}.jsonl`);
      const dataset = await upload('/datasets', file, {
        params: { name: file.name },
        signal: new AbortController().signal,
        onProgress: () => {},
      });
      const base = { problems: [{ name: 'file', path: dataset.path }] };
      navigate(address('/launch', { base: JSON.stringify(base) }));
    } catch (error) {
      setBusy(false);
      sayError(error);
    }
  };
  return html`<button
    type="button"
    class="button"
    disabled=${isBusy || count < 2}
    title=${count === 1 ? 'A dataset has at least two prompts: one is held out' : undefined}
    onClick=${go}
  >
    Launch a run on ${count > 10_000 ? 'the first 10,000 prompts' : plural(count, 'prompt')}
  </button>`;
}
