/** A search above its curves: its configurations, the best one so far, the final comparison, and its cost. */
import { html, useEffect, useState } from '../../dom.js';
import { say, sayError } from '../../app/state.js';
import { post } from '../../data/api.js';
import { useGet } from '../../data/resource.js';
import { makeBestLine } from '../../lib/runs/search.js';
import { formatField } from '../../lib/runs/config.js';
import { formatDuration, formatMoney, formatValue, plural } from '../../lib/text/format.js';
import { Confirm } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';
import { Ago } from '../shared/states.js';
import { DataTable, makeNumberHeads } from '../shared/data_table.js';

const LIVE = ['queued', 'running', 'paused'];
const PLOT = { width: 640, height: 120, edge: 8 };
const HOUR = 3600;

/**
 * @param {{experiment: string, runs: number, onRuns: () => void}} props `runs`: number of runs on the page; `onRuns`
 *   is called when the search has queued more
 */
export function Search({ experiment, runs, onRuns }) {
  const { data, error, reload } = useGet(
    '/searches',
    { experiment },
    {
      live: ['run', 'event'],
      concerns: (change) => change.experiment === experiment || change.kind === 'search',
      every: 2000,
    },
  );
  const search = data?.items[0];
  useEffect(() => {
    if (search && search.runs > runs) onRuns();
  }, [search?.runs]);
  if (error && !data) return html`<p class="quiet" role="alert">Search unavailable: ${error.message}</p>`;
  return search ? html`<${SearchCard} search=${search} reload=${reload} />` : null;
}

/** @param {{search: Api.SearchItem, reload: () => void}} props */
function SearchCard({ search, reload }) {
  const isActive = ['searching', 'comparing'].includes(search.status);
  const bestTrial = search.trials.find(({ number }) => number === search.best);
  return html`<section class="card section run-part" aria-labelledby="search-title">
    <div class="section-head">
      <h2 id="search-title">Search</h2>
      <span class=${isActive ? 'status-running' : 'faint'}>${statusText(search)}</span>
      <span class="spacer"></span>
      ${isActive && html`<${ForOperator}><${StopButton} search=${search} reload=${reload} /><//>`}
    </div>
    <p>
      ${
        bestTrial
          ? html`Best so far: <b>${bestTrial.variant}</b> with ${search.settings.metric} ${formatValue(bestTrial.value)}, by one
              seed.`
          : 'No configuration has a valid value yet.'
      }
      ${' '}
      <span class="quiet">${spentText(search)}</span>
    </p>
    ${search.verdict && html`<p><b>${search.verdict}</b></p>`}
    ${search.finalists.length > 0 && html`<${Finalists} search=${search} />`}
    <${BestSoFar} search=${search} />
    <${Trials} search=${search} />
    <${Events} events=${search.events} />
  </section>`;
}

/** @param {Api.SearchItem} search */
function statusText({ status, reason, trials, configurations, seeds }) {
  if (status === 'searching') return `${trials.length} of at most ${plural(configurations, 'configuration')}`;
  if (status === 'comparing') return `comparing the best over ${plural(seeds.length - 1, 'remaining seed')}: ${reason}`;
  return `${status}: ${reason}`;
}

/** @param {Api.SearchItem} search */
function spentText({ runs, hours, money, steps_saved: savedShare, settings }) {
  const budget = settings.hours === null ? '' : ` of ${settings.hours} hours`;
  const prices = Object.entries(money).map(([currency, sum]) => `, ${formatMoney(sum)} ${currency}`);
  const pruningText = savedShare === null ? '' : `; pruning has saved ${Math.round(savedShare * 100)} % of the steps`;
  const slots = `${formatDuration(hours * HOUR)}${budget} of worker slots`;
  return `${plural(runs, 'run')}, ${slots}${prices.join('')}${pruningText}.`;
}

/** @param {{search: Api.SearchItem, reload: () => void}} props */
function StopButton({ search, reload }) {
  const [isAsking, setAsking] = useState(false);
  const stop = async () => {
    try {
      await post(`/searches/${search.experiment}/stop`, {});
      say('The search was stopped');
    } catch (error) {
      sayError(error);
    }
    reload();
  };
  return html`<button class="button button-small" onClick=${() => setAsking(true)}>Stop search</button>
    ${
      isAsking &&
      html`<${Confirm}
        title="Stop this search?"
        text="No further configuration is tried. Runs that wait or train are stopped; what they have recorded stays."
        confirm="Stop search"
        onConfirm=${stop}
        onClose=${() => setAsking(false)}
      />`
    }`;
}

/** The comparison over the remaining seeds. @param {{search: Api.SearchItem}} props */
function Finalists({ search }) {
  return html`<p class="quiet">
      ${search.settings.metric} over the remaining seeds. The seed that chose them is left out: it favours them.
    </p>
    <${DataTable}
      name="Final comparison"
      heads=${['configuration', ...makeNumberHeads('mean', '95 % interval', 'n', 'difference from the first', 'p (Holm, all pairs)')]}
    >
    <tbody>
      ${search.finalists.map(
        (row) => html`<tr key=${row.number}>
          <th scope="row">${row.variant}</th>
          <td class="number">${formatValue(row.mean)}</td>
          <td class="number">${formatInterval(row.low, row.high)}</td>
          <td class="number">
            ${row.n}${row.waiting > 0 && html` <span class="faint">+ ${row.waiting} to come</span>`}
          </td>
          <td class="number">
            ${formatValue(row.difference)} ${formatInterval(row.difference_low, row.difference_high, '')}
            ${row.paired !== null && html` <span class="faint">${row.paired ? 'paired' : 'unpaired'}</span>`}
          </td>
          <td class="number">${formatValue(row.p)}</td>
        </tr>`,
      )}
    </tbody>
    <//>`;
}

/** @param {number | null} low @param {number | null} high @param {string} [fallback] */
const formatInterval = (low, high, fallback = '–') =>
  low === null || high === null ? fallback : `[${formatValue(low)}, ${formatValue(high)}]`;

/**
 * A plot of the configurations' values in order, with the best value so far.
 * @param {{search: Api.SearchItem}} props
 */
function BestSoFar({ search }) {
  const { dots, line, low, high } = makeBestLine(search.trials, PLOT);
  if (dots.length < 2) return null;
  const label = `${search.settings.metric} of ${plural(dots.length, 'configuration')} in order, from
    ${formatValue(low)} to ${formatValue(high)}; the line is the best so far`;
  return html`<figure class="search-best">
    <svg viewBox=${`0 0 ${PLOT.width} ${PLOT.height}`} role="img" aria-label=${label}>
      ${line && html`<path d=${line} class="search-line" />`}
      ${dots.map(
        ({ x, y, trial }) => html`<circle
          key=${trial.number}
          cx=${x}
          cy=${y}
          r="3.5"
          class=${trial.counts ? 'search-dot' : 'search-dot is-open'}
        >
          <title>${`${trial.number}: ${trial.variant}, ${formatValue(trial.value)}, ${trial.state}`}</title>
        </circle>`,
      )}
    </svg>
    <figcaption class="faint">
      ${search.settings.metric} by configuration, ${formatValue(low)} to ${formatValue(high)}; line: best so far;
      hollow: pruned or unfinished
    </figcaption>
  </figure>`;
}

/** @param {{search: Api.SearchItem}} props */
function Trials({ search }) {
  return html`<${DataTable}
    name="Configurations"
    frame="table-scroll search-trials"
    heads=${[...makeNumberHeads('#'), ...search.knobs, ...makeNumberHeads(search.settings.metric, 'step'), 'state', 'reason']}
  >
    <tbody>
      ${search.trials.map(
        (trial) => html`<tr key=${trial.number} class=${trial.number === search.best ? 'search-is-best' : ''}>
          <td class="number">${trial.number}</td>
          ${trial.values.map((value, i) => html`<td key=${search.knobs[i]}>${formatField(value)}</td>`)}
          <td class="number">${formatValue(trial.value)}</td>
          <td class="number">${trial.step || '–'}</td>
          <td>
            ${
              trial.run
                ? html`<a href=${`/run/${trial.run}`} title=${trial.run_name}>${stateText(trial)}</a>`
                : trial.state
            }
          </td>
          <td class="search-reason">${trial.reason}</td>
        </tr>`,
      )}
    </tbody>
  <//>`;
}

/** @param {Api.SearchTrialItem} trial */
function stateText({ state, chosen, reason }) {
  if (LIVE.includes(state)) return reason ? `${state}, stopping` : state;
  return chosen ? `${state}, among the best` : state;
}

/** @param {{events: Api.SearchEvent[]}} props */
const Events = ({ events }) =>
  events.length > 0 &&
  html`<details class="search-events">
    <summary>History</summary>
    <ul>
      ${events.map(
        ({ at, run, message }, i) => html`<li key=${i}>
          <span class="faint"><${Ago} time=${at} /></span> <a href=${`/run/${run}`}>${message}</a>
        </li>`,
      )}
    </ul>
  </details>`;
