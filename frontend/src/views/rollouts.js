/** Rollouts: what the policy wrote, at which step, and what it got for it. */
import { html } from '../dom.js';
import { navigate, useQuery } from '../app/router.js';
import { useGet } from '../data/resource.js';
import { useTitle } from '../app/title.js';
import { isForeign } from '../lib/runs/origin.js';
import { address, choice, formerly, text } from '../lib/url.js';
import { Empty, Loaded, Skeleton } from '../components/shared/states.js';
import { Segments, Select, Status } from '../components/shared/marks.js';
import { Breakdown } from '../components/rollouts/breakdown.js';
import { RolloutBrowser } from '../components/rollouts/browser.js';
import { Probes } from '../components/rollouts/probes.js';
import { PromptAtlas } from '../components/rollouts/atlas.js';
import { RolloutSearch } from '../components/rollouts/search.js';
import { TryRemedy } from '../components/trials/try_remedy.js';

const SPEC = {
  run: text(),
  view: formerly(choice(['read', 'search', 'breakdown', 'probes', 'runs', 'prompts']), { causes: 'breakdown' }),
  kind: text('train'),
};
const VIEWS = [
  { value: 'read', label: 'Read' },
  { value: 'search', label: 'Search' },
  { value: 'breakdown', label: 'Breakdown', title: 'Which completions made a metric change' },
  { value: 'probes', label: 'Evaluations', title: 'The prompts of an evaluation at all its steps' },
  { value: 'runs', label: 'Across runs', title: 'The same in every run of the experiment' },
  { value: 'prompts', label: 'Prompts', title: 'Pass rates of the training prompts over time' },
];
/** Runs of an experiment that are asked for; the service shows some of them and says how many are left out. */
const MAX_RUNS = 200;

export function View() {
  const [{ run }] = useQuery(SPEC);
  return html`<div class="page">${run ? html`<${OfRun} id=${run} key=${run} />` : html`<${ChooseRun} />`}</div>`;
}

/** @param {{id: string}} props */
function OfRun({ id }) {
  const run = useGet(`/runs/${encodeURIComponent(id)}`, undefined, {
    live: ['run'],
    concerns: (data) => data.id === id,
    every: 3000,
  });
  const [{ view, kind }, change] = useQuery(SPEC);
  const experiment = view === 'runs' ? run.data?.experiment : null;
  const siblings = useGet(experiment ? '/runs' : null, { experiment, limit: MAX_RUNS, sort: 'name' });
  const name = run.data?.name ?? '';
  useTitle(name ? `Rollouts of ${name}` : 'Rollouts');
  return html`<${Loaded} resource=${run} skeleton=${html`<${Skeleton} rows=${10} />`}>
    ${(data) => html`
      <div class="page-head">
        <h1>Rollouts</h1>
        <${Siblings} run=${data} />
        <${Status} run=${data} />
        <span class="quiet">
          ${data.variant} · seed ${data.seed}
        </span>
        <${Segments}
          label="View"
          value=${view}
          options=${VIEWS}
          onChange=${(/** @type {string} */ next) => change({ view: next }, { push: true })}
        />
        <span class="spacer"></span>
        ${data.onset && data.cause && html`<${TryRemedy} run=${data} cause=${data.cause} />`}
        <a class="button-quiet" href=${`/run/${id}`}>
          View run
        </a>
      </div>
      ${view === 'search' && html`<${RolloutSearch} run=${data} />`}
      ${view === 'breakdown' && html`<${Breakdown} run=${data} />`}
      ${view === 'prompts' && html`<${PromptAtlas} run=${id} name=${data.name} />`}
      ${
        (view === 'probes' || view === 'runs') &&
        html`<${Evaluations} run=${data} siblings=${siblings.data?.items ?? []} kind=${kind} />`
      }
      ${
        view === 'read' &&
        html`<${RolloutBrowser}
          run=${id}
          live=${['queued', 'running'].includes(data.status)}
          foreign=${isForeign(data)}
          onset=${data.onset}
        />`
      }
    `}
  <//>`;
}

/**
 * Prompts of an evaluation over its steps, of a run and of others of its experiment.
 * @param {{run: Api.RunItem, siblings: Api.RunItem[], kind: string}} props
 */
function Evaluations({ run, siblings, kind }) {
  const runs = [run, ...siblings.filter(({ id }) => id !== run.id)];
  return html`<${Probes}
    runs=${runs.map(({ id }) => id)}
    names=${Object.fromEntries(runs.map(({ id, name }) => [id, name]))}
    kind=${kind.startsWith('eval') ? kind : 'eval'}
  />`;
}

/** Links to the same step and prompt in another run of the experiment. @param {{run: Api.RunItem}} props */
function Siblings({ run }) {
  const siblings = useGet(run.experiment ? '/runs' : null, {
    experiment: run.experiment,
    limit: 200,
    sort: 'name',
  });
  const runs = siblings.data?.items ?? [];
  const options = (runs.some(({ id }) => id === run.id) ? runs : [run, ...runs]).map(({ id, name, variant, seed }) => ({
    value: id,
    label: `${name} · ${variant} s${seed}`,
  }));
  const go = (/** @type {string} */ id) =>
    navigate(address('/rollouts', { ...Object.fromEntries(new URLSearchParams(location.search)), run: id }));
  return html`<${Select} label="run" value=${run.id} options=${options} onChange=${go} />`;
}

function ChooseRun() {
  useTitle('Rollouts');
  const runs = useGet('/runs', { limit: 20 });
  return html`
    <div class="page-head">
      <h1>Rollouts</h1>
      <span class="quiet">Select a run</span>
    </div>
    <${Loaded}
      resource=${runs}
      isEmpty=${({ items }) => !items.length}
      empty=${html`<${Empty}
        title="No runs yet"
        action=${html`<a class="button button-primary" href="/launch">
          Launch a run
        </a>`}
      />`}
    >
      ${({ items }) => html`<ul class="card run-choice">
        ${items.map(
          (run) => html`<li key=${run.id}>
            <a href=${address('/rollouts', { run: run.id })}>${run.name}</a> <${Status} run=${run} />${' '}
            <span class="quiet">
              ${run.variant} · seed ${run.seed}
            </span>
          </li>`,
        )}
      </ul>`}
    <//>
  `;
}
