/** Which runs are compared: the named ones, those that match a query, or an experiment's. */
import { html } from '../../dom.js';
import { getAll } from '../../data/api.js';
import { namedRuns } from '../../data/run_list.js';
import { useGet } from '../../data/resource.js';
import { addressOfView } from '../../lib/runs/views.js';
import { plural } from '../../lib/text/format.js';
import { Ago, Empty, Failure, Skeleton } from '../shared/states.js';

/** @typedef {Pick<import('../../views/compare.js').CompareView, 'runs' | 'query' | 'experiment'>} Choice */
/** @typedef {{runs: Api.RunItem[], missing: string[], isCut?: boolean}} Loaded `isCut`: further runs match */

/** Runs of a query that are compared at most: their configs are loaded too. */
export const MAX_MATCHING = 1_000;

/** The choice of runs as one text, the key of their request; null if nothing was chosen. @param {Choice} view */
export function choiceOf({ runs, query, experiment }) {
  if (runs?.length) return runs.join();
  return query ? `query ${query}` : experiment || null;
}

/** Says why there are no runs to compare. @param {Choice} view */
export function emptyChoice({ runs, query }) {
  if (runs?.length) return 'These runs do not exist';
  return query ? 'No run matches this query now' : 'This experiment has no runs';
}

/** The chosen runs with their configs. @param {Choice} view @param {AbortSignal} signal @returns {Promise<Loaded>} */
export async function loadRuns({ experiment, runs, query }, signal) {
  if (runs?.length) return namedRuns([...new Set(runs)], { include: 'config' }, signal);
  const filter = query ? { query } : { experiment };
  const most = query ? MAX_MATCHING + 1 : Infinity;
  const loadedRuns = await getAll('/runs', { ...filter, include: 'config', limit: 200 }, { most, signal });
  return query && loadedRuns.length > MAX_MATCHING
    ? { runs: loadedRuns.slice(0, MAX_MATCHING), missing: [], isCut: true }
    : { runs: loadedRuns, missing: [] };
}

/** The experiments and saved views that can be compared, where the address names none. */
export function ChooseExperiment() {
  const experiments = useGet('/experiments');
  const comparisons = useGet('/views').data?.items.filter(({ page }) => page === 'compare') ?? [];
  const { data, error, reload } = experiments;
  if (!data)
    return html`<div class="page">
      ${error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Skeleton} rows=${8} />`}
    </div>`;
  if (!data.items.length && !comparisons.length)
    return html`<${Empty}
      title="Nothing to compare yet"
      action=${html`<a class="button button-primary" href="/launch">
        Launch an experiment
      </a>`}
    >
      An experiment trains a few variants with a few seeds each. Compare their curves here.
    <//>`;
  return html`<div class="page">
    <header class="page-head">
      <h1>Compare</h1>
      <span class="quiet">
        Choose an experiment, or select runs in <a href="/runs">Runs</a>.
      </span>
    </header>
    ${
      comparisons.length > 0 &&
      html`<div class="card" role="group" aria-label="Saved views">
        ${comparisons.map(
          (view) => html`<a class="choice-row" key=${view.id} href=${addressOfView(view)}>
            <b>${view.name}</b>
            <span class="faint">${view.query}</span>
            <span class="spacer"></span>
            <span class="faint">saved view</span>
          </a>`,
        )}
      </div>`
    }
    ${
      data.items.length > 0 &&
      html`<div class="card">
      ${data.items.map(
        (item) => html`<a class="choice-row" key=${item.id} href=${`/compare?experiment=${item.id}`}>
          <b>${item.name}</b>
          <span class="faint">
            ${plural(item.runs, 'run')} · ${item.variants.join(', ')}
          </span>
          <span class="spacer"></span>
          ${item.statuses.running > 0 && html`<span class="status-running">${item.statuses.running} training</span>`}
          <span class="faint">
            <${Ago} time=${item.created_at} />
          </span>
        </a>`,
      )}
    </div>`
    }
  </div>`;
}
