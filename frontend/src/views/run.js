/** The page of a run: its state, curves, rollouts, evaluations, config, history, output and files. */
import { html } from '../dom.js';
import { useQuery } from '../app/router.js';
import { useGet } from '../data/resource.js';
import { useLive } from '../data/live.js';
import { useKeys } from '../app/keys.js';
import { useJumpToPanels } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { listMetrics } from '../lib/runs/fields.js';
import { isForeign } from '../lib/runs/origin.js';
import { choice, flag, list, text } from '../lib/url.js';
import { CURVE_SPEC, makeCurveKeys } from '../components/curves/controls.js';
import { Loaded, Skeleton } from '../components/shared/states.js';
import { TabPanel, Tabs } from '../components/shared/tabs.js';
import { RolloutsTab } from '../components/rollouts/tab.js';
import { RunHeader } from '../components/run/header.js';
import { Charts, Overview } from '../components/run/overview.js';
import { EvaluationsTab } from '../components/run/evaluations.js';
import { ConfigTab, EventsTab, FilesTab, LogTab } from '../components/run/tabs.js';

/** @typedef {{value: string, label: string, View: (props: any) => any, isForeign: boolean}} Tab */

/** `isForeign`: also for a run of another trainer, whose output and checkpoints are stored elsewhere. @type {Tab[]} */
const TABS = [
  { value: 'overview', label: 'Overview', View: Overview, isForeign: true },
  { value: 'charts', label: 'Charts', View: Charts, isForeign: true },
  { value: 'rollouts', label: 'Rollouts', View: RolloutsTab, isForeign: true },
  { value: 'evaluations', label: 'Evaluations', View: EvaluationsTab, isForeign: true },
  { value: 'config', label: 'Config', View: ConfigTab, isForeign: true },
  { value: 'events', label: 'Events', View: EventsTab, isForeign: true },
  { value: 'log', label: 'Log', View: LogTab, isForeign: false },
  { value: 'files', label: 'Files', View: FilesTab, isForeign: false },
];
const SPEC = {
  tab: choice(TABS.map(({ value }) => value)),
  q: text(),
  metrics: list(['all']),
  panel: text(),
  full: flag(),
  across: flag(),
  kind: text(),
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
  return html`<div class="page run-page">
    <${Loaded} resource=${run} skeleton=${html`<${Skeleton} rows=${12} />`}>
      ${(data) => html`<${Page}
        run=${data}
        onChange=${(changes) => run.put((old) => ({ ...old, ...changes }))}
        reload=${run.reload}
      />`}
    <//>
  </div>`;
}

/** @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, reload: () => void}} props */
function Page({ run, onChange, reload }) {
  const [view, change] = useQuery(SPEC);
  useKeys(makeCurveKeys(view, change));
  useJumpToPanels(listMetrics([run]), (panel) => change({ tab: 'charts', panel }, { push: true }));
  const tabs = isForeign(run) ? TABS.filter((tab) => tab.isForeign) : TABS;
  const tab = tabs.find(({ value }) => value === view.tab) ?? tabs[0];
  useTitle(tab.value === 'overview' ? run.name : `${run.name}: ${tab.label}`);
  return html`
    <${RunHeader} run=${run} onChange=${onChange} reload=${reload} />
    <${Tabs}
      label="Parts of the run"
      tabs=${tabs}
      activeTab=${tab.value}
      onGo=${(/** @type {string} */ value) => change({ tab: value }, { push: true })}
    />
    <${TabPanel} activeTab=${tab.value}>
      <${tab.View} key=${`${tab.value} ${run.id}`} run=${run} view=${view} change=${change} />
    <//>
  `;
}
