/** The tab of a run with the policy's completions: to browse, to search, by a change of a metric, and by prompt. */
import { html } from '../../dom.js';
import { navigate, useQuery } from '../../app/router.js';
import { isForeign } from '../../lib/runs/origin.js';
import { runAddress } from '../../lib/runs/addresses.js';
import { choice } from '../../lib/url.js';
import { Segments, Select } from '../shared/marks.js';
import { PromptAtlas } from './atlas.js';
import { Breakdown } from './breakdown.js';
import { RolloutBrowser } from './browser.js';
import { RolloutSearch } from './search.js';
import { formatSibling, useSiblings } from './siblings.js';

const VIEWS = [
  { value: 'read', label: 'Read' },
  { value: 'search', label: 'Search' },
  { value: 'breakdown', label: 'Breakdown', title: 'Which completions made a metric change' },
  { value: 'prompts', label: 'Prompts', title: 'Pass rates of the training prompts over time' },
];
const SPEC = { view: choice(VIEWS.map(({ value }) => value)) };

/** @param {{run: Api.RunItem}} props */
export function RolloutsTab({ run }) {
  const [{ view }, change] = useQuery(SPEC);
  const siblings = useSiblings(run);
  return html`
    <div class="toolbar rollout-views">
      <${Segments}
        label="View"
        value=${view}
        options=${VIEWS}
        onChange=${(/** @type {string} */ next) => change({ view: next }, { push: true })}
      />
      <span class="spacer"></span>
      <${Siblings} run=${run} siblings=${siblings} />
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
        siblings=${siblings}
      />`
    }
  `;
}

/**
 * Links to the same step and prompt in another run of the experiment.
 * @param {{run: Api.RunItem, siblings: Api.RunItem[]}} props
 */
function Siblings({ run, siblings }) {
  if (siblings.length < 2) return null;
  return html`<${Select}
    label="same in"
    value=${run.id}
    options=${siblings.map((sibling) => ({ value: sibling.id, label: formatSibling(sibling) }))}
    onChange=${(/** @type {string} */ id) => navigate(runAddress(id) + location.search)}
  />`;
}
