/** One run: its state, curves, rollouts, config, history, output and files. */
import { html } from '../dom.js';
import { useQuery } from '../app/router.js';
import { useGet } from '../data/resource.js';
import { useLive } from '../data/live.js';
import { useKeys } from '../app/keys.js';
import { useTitle } from '../app/title.js';
import { isForeign } from '../lib/runs/origin.js';
import { choice, flag, list, text } from '../lib/url.js';
import { CURVE_SPEC, curveKeys } from '../components/curves/controls.js';
import { Loaded, Skeleton } from '../components/shared/states.js';
import { RolloutBrowser } from '../components/rollouts/browser.js';
import { RunHeader } from '../components/run/header.js';
import { Charts, Overview } from '../components/run/overview.js';
import { EvaluationsTab } from '../components/run/evaluations.js';
import { ConfigTab, EventsTab, FilesTab, LogTab } from '../components/run/tabs.js';
import { lookup } from '../lib/lookup.js';

/** @type {Record<string, string>} */
const TABS = {
  overview: 'Overview',
  charts: 'Charts',
  rollouts: 'Rollouts',
  evaluations: 'Evaluations',
  config: 'Config',
  events: 'Events',
  log: 'Log',
  files: 'Files',
};
/** Tabs of a run of another trainer, whose output and checkpoints are stored elsewhere. */
const TABS_OF_FOREIGN = ['overview', 'charts', 'rollouts', 'evaluations', 'config', 'events'];
const SPEC = {
  tab: choice(Object.keys(TABS)),
  q: text(),
  metrics: list(['all']),
  panel: text(),
  full: flag(),
  ...CURVE_SPEC,
};

/** @param {{run_id: string}} props */
export function View({ run_id: id }) {
  const run = useGet(`/runs/${id}`, undefined, {
    live: ['run'],
    concerns: (data) => data.id === id,
    every: 3000,
  });
  useLive(['run'], (_, data) => {
    if (data?.id === id) run.put((old) => ({ ...old, ...data }));
  });
  useTitle(run.data?.name ?? 'Run');
  return html`<div class="page">
    <${Loaded} resource=${run} skeleton=${html`<${Skeleton} rows=${12} />`}>
      ${(data) => html`<${Page}
        run=${data}
        onChange=${(changed) => run.put((old) => ({ ...old, ...changed }))}
        reload=${run.reload}
      />`}
    <//>
  </div>`;
}

/** @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, reload: () => void}} props */
function Page({ run, onChange, reload }) {
  const [view, change] = useQuery(SPEC);
  useKeys(curveKeys(view, change));
  const go = (/** @type {string} */ tab) => change({ tab }, { push: true });
  const live = ['queued', 'running'].includes(run.status);
  /** @type {Record<string, (props: any) => any>} */
  const parts = {
    overview: Overview,
    charts: Charts,
    evaluations: EvaluationsTab,
    config: ConfigTab,
    events: EventsTab,
    log: LogTab,
    files: FilesTab,
  };
  const tabs = isForeign(run) ? TABS_OF_FOREIGN : Object.keys(TABS);
  const at = tabs.includes(view.tab) ? view.tab : 'overview';
  const Tab = lookup(parts, at);
  return html`
    <${RunHeader} run=${run} onChange=${onChange} reload=${reload} />
    <${Tabs} names=${tabs} at=${at} onGo=${go} />
    <div class="tab-body" role="tabpanel" id="run-panel" aria-labelledby=${`tab-${at}`}>
      ${
        at === 'rollouts'
          ? html`<${RolloutBrowser} run=${run.id} live=${live} foreign=${isForeign(run)} onset=${run.onset} />`
          : html`<${Tab} key=${`${at} ${run.id}`} run=${run} view=${view} change=${change} />`
      }
    </div>
  `;
}

/**
 * The tabs; arrow keys move between them.
 * @param {{names: string[], at: string, onGo: (tab: string) => void}} props
 */
function Tabs({ names, at, onGo }) {
  const move = (/** @type {KeyboardEvent & {currentTarget: HTMLElement}} */ event) => {
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    const next = names[(names.indexOf(at) + by + names.length) % names.length];
    onGo(next);
    const tab = event.currentTarget.querySelector(`#tab-${next}`);
    if (tab instanceof HTMLElement) tab.focus();
  };
  return html`<div class="tabs run-tabs" role="tablist" aria-label="Parts of the run" onKeyDown=${move}>
    ${names.map(
      (name) => html`<button
        type="button"
        key=${name}
        role="tab"
        id=${`tab-${name}`}
        aria-selected=${name === at}
        aria-controls="run-panel"
        tabindex=${name === at ? 0 : -1}
        onClick=${() => onGo(name)}
      >
        ${lookup(TABS, name)}
      </button>`,
    )}
  </div>`;
}
