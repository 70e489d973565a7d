/** The tab of a run with what the policy wrote: to read, to search, by what changed a metric, by prompt. */
import { html } from '../../dom.js';
import { navigate, useQuery } from '../../app/router.js';
import { useGet } from '../../data/resource.js';
import { isForeign } from '../../lib/runs/origin.js';
import { runAddress } from '../../lib/runs/addresses.js';
import { choice } from '../../lib/url.js';
import { Segments, Select } from '../shared/marks.js';
import { PromptAtlas } from './atlas.js';
import { Breakdown } from './breakdown.js';
import { RolloutBrowser } from './browser.js';
import { RolloutSearch } from './search.js';

const VIEWS = [
  { value: 'read', label: 'Read' },
  { value: 'search', label: 'Search' },
  { value: 'breakdown', label: 'Breakdown', title: 'Which completions made a metric change' },
  { value: 'prompts', label: 'Prompts', title: 'Pass rates of the training prompts over time' },
];
const SPEC = { view: choice(VIEWS.map(({ value }) => value)) };
const MAX_SIBLINGS = 200;

/** @param {{run: Api.RunItem}} props */
export function RolloutsTab({ run }) {
  const [{ view }, change] = useQuery(SPEC);
  return html`
    <div class="toolbar rollout-views">
      <${Segments}
        label="View"
        value=${view}
        options=${VIEWS}
        onChange=${(/** @type {string} */ next) => change({ view: next }, { push: true })}
      />
      <span class="spacer"></span>
      ${run.experiment && html`<${Siblings} run=${run} experiment=${run.experiment} />`}
    </div>
    ${view === 'search' && html`<${RolloutSearch} run=${run} />`}
    ${view === 'breakdown' && html`<${Breakdown} run=${run} />`}
    ${view === 'prompts' && html`<${PromptAtlas} run=${run.id} name=${run.name} />`}
    ${
      view === 'read' &&
      html`<${RolloutBrowser}
        run=${run.id}
        live=${['queued', 'running'].includes(run.status)}
        foreign=${isForeign(run)}
        onset=${run.onset}
      />`
    }
  `;
}

/** Leads to the same step and prompt in another run of the experiment. @param {{run: Api.RunItem, experiment: string}} props */
function Siblings({ run, experiment }) {
  const siblings = useGet('/runs', { experiment, limit: MAX_SIBLINGS, sort: 'name' });
  const runs = siblings.data?.items ?? [];
  if (runs.length < 2) return null;
  const all = runs.some(({ id }) => id === run.id) ? runs : [run, ...runs];
  return html`<${Select}
    label="same in"
    value=${run.id}
    options=${all.map(({ id, name, variant, seed }) => ({ value: id, label: `${name} · ${variant} s${seed}` }))}
    onChange=${(/** @type {string} */ id) => navigate(runAddress(id) + location.search)}
  />`;
}
