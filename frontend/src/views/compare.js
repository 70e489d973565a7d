/** Compare an experiment or other runs: curves, results with their uncertainty, differing settings, and signal. */
import { html, useEffect, useMemo, useState } from '../dom.js';
import { navigate, useQuery } from '../app/router.js';
import { useGet, useLoad } from '../data/resource.js';
import { useLive } from '../data/live.js';
import { findMetricInfo, groupLooks, makeRelatedLooks, say, useJumpToPanels } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { useKeys } from '../app/keys.js';
import { choice, flag, list, number, text } from '../lib/url.js';
import { chooseSections } from '../lib/metric_choice.js';
import { groupBySection, filterMetrics } from '../lib/metrics.js';
import { keepOnePerConfig, findScalesApart, scaleWarning } from '../lib/runs/comparable.js';
import { parseGrouping } from '../lib/runs/grouping.js';
import {
  chooseBand,
  findBaselineKey,
  selectDrawnGroups,
  takeFairShare,
  findGroup,
  makeGroups,
  makeRunNames,
} from '../lib/runs/groups.js';
import { MAX_RUNS } from '../data/series.js';
import { listMetrics, runTitle } from '../lib/runs/fields.js';
import { listOnsets } from '../lib/runs/verdicts.js';
import { formatCount, plural } from '../lib/text/format.js';
import { CURVE_SPEC, makeCurveKeys } from '../components/curves/controls.js';
import { CompareControls, Legend } from '../components/compare/controls.js';
import { Head, makeTitle } from '../components/compare/head.js';
import { MAX_MATCHING, makeChoice, describeEmptyChoice, loadRuns } from '../components/compare/runs.js';
import { ComparisonViews } from '../components/compare/views.js';
import { ReportDialog } from '../components/compare/report.js';
import { EvaluationTable } from '../components/evaluations/table.js';
import { SweepGrid } from '../components/compare/sweep_grid.js';
import { Matrix } from '../components/compare/matrix.js';
import { Relations } from '../components/compare/relations.js';
import { ConfigDifferences } from '../components/compare/differences.js';
import { Empty, Failure, Skeleton, Stale } from '../components/shared/states.js';
import { TabPanel, Tabs } from '../components/shared/tabs.js';
import { Panels } from '../components/curves/panels.js';
import { Search } from '../components/compare/search.js';
import { SignalBudgets } from '../components/compare/signal_budget.js';
import { TrialsOfExperiment } from '../components/trials/trials.js';
import { openRollouts } from '../components/curves/panel.js';

const SPEC = {
  tab: choice(['curves', 'results', 'settings', 'signal', 'search', 'trial']),
  runs: list(),
  query: text(),
  by: text('variant'),
  band: choice(['auto', 'ci95', 'std', 'stderr', 'minmax', 'none']),
  seeds: flag(),
  metrics: list(['key']),
  q: text(),
  hide: list([]),
  grid: text(),
  panel: text(),
  columns: list(),
  planned: number(/** @type {number | null} */ (null), { min: 0, max: 1000 }),
  plot: choice(['parallel', 'scatter']),
  axes: list(),
  ...CURVE_SPEC,
};

/**
 * Tabs; `kind`: the kind of experiments with this tab.
 * @type {{value: 'curves' | 'results' | 'settings' | 'signal' | 'search' | 'trial', label: string, title: string,
 *   kind?: string}[]}
 */
const TABS = [
  { value: 'curves', label: 'Curves', title: 'Metrics over the steps' },
  { value: 'results', label: 'Results', title: 'Variants with their differences, intervals and evaluations' },
  { value: 'settings', label: 'Settings', title: 'Config differences, and results by setting' },
  { value: 'signal', label: 'Signal', title: 'How much of what was sampled moved the policy' },
  { value: 'search', label: 'Search', title: 'Configurations that the search has tried', kind: 'search' },
  { value: 'trial', label: 'Trial', title: 'Verdict on the remedies', kind: 'trial' },
];

/** Number of charts that need no headings, which would each begin a row. */
const MAX_WITHOUT_HEADINGS = 9;

/** The arm of a trial with which its remedies are compared. */
const CONTROL_ARM = 'no change';

/** @typedef {import('../lib/url.js').Values<typeof SPEC>} CompareView */
/** @typedef {import('../lib/runs/groups.js').Group} Group */
/** @param {{experiment_id?: string}} props without an experiment, the address contains the runs or a query */
export function View({ experiment_id: experiment = '' }) {
  const [view, change] = useQuery(SPEC);
  const choice = { experiment, runs: view.runs, query: view.query };
  const key = makeChoice(choice);
  const resource = useLoad(key, (signal) => loadRuns(choice, signal));
  useEffect(() => {
    if (key === null) navigate('/experiments', { replace: true });
  }, [key]);
  useLive(['run'], (type, run) => {
    if (type === 'resync') resource.reload();
    else
      resource.put((loaded) => ({
        ...loaded,
        runs: loaded.runs.map((old) => (old.id === run.id ? { ...old, ...run } : old)),
      }));
  });
  if (!resource.data)
    return html`<div class="page">
      ${
        resource.error
          ? html`<${Failure} error=${resource.error} retry=${resource.reload} />`
          : html`<${Skeleton} rows=${12} label="Loading runs" />`
      }
    </div>`;
  const { runs, missing, isCut } = resource.data;
  if (!runs.length)
    return html`<${Empty}
      title=${describeEmptyChoice(choice)}
      action=${html`<a class="button" href="/experiments">
        Back to experiments
      </a>`}
    >
      ${view.query ? view.query : 'They may have been deleted.'}
    <//>`;
  return html`
    ${resource.error && html`<${Stale} error=${resource.error} since=${resource.loadedAt} retry=${resource.reload} />`}
    ${
      missing.length > 0 &&
      html`<div class="stale" role="note">
        ${plural(missing.length, 'run')} of this link ${missing.length === 1 ? 'does' : 'do'} not exist:${' '}
        ${missing.join(', ')}. Comparing the others.
      </div>`
    }
    ${
      isCut &&
      html`<div class="stale" role="note">
        More than ${formatCount(MAX_MATCHING)} runs match the query.
        Comparing the newest ${formatCount(MAX_MATCHING)}.
      </div>`
    }
    <${Comparison} runs=${runs} experiment=${experiment} view=${view} change=${change} onRuns=${resource.reload} />
  `;
}

/**
 * Returns the tabs of an experiment or of other runs. A search and a trial have an extra tab.
 * @param {string} experiment @param {string} chosenTab
 */
function useTabs(experiment, chosenTab) {
  const { data, error } = useGet(experiment ? `/experiments/${encodeURIComponent(experiment)}` : null);
  const isUnknown = experiment && !data && !error;
  const tabs = TABS.filter(({ value, kind }) => !kind || kind === data?.kind || (isUnknown && value === chosenTab));
  return { tabs, at: tabs.find(({ value }) => value === chosenTab)?.value ?? 'curves', createdAt: data?.created_at };
}

/**
 * @param {{runs: Api.RunItem[], experiment: string, view: CompareView,
 *   change: (changes: object, options?: object) => void, onRuns: () => void}} props `experiment`: id of the
 *   runs' experiment, or empty for other runs; `onRuns`: called if there are new runs
 */
function Comparison({ runs, experiment, view: query, change, onRuns }) {
  const { tabs, at, createdAt } = useTabs(experiment, query.tab);
  useTitle(makeTitle(runs) + (at === 'curves' ? '' : `: ${tabs.find(({ value }) => value === at)?.label}`));
  const ids = useMemo(() => runs.map(({ id }) => id), [runs.map(({ id }) => id).join()]);
  const isGrouped = query.by !== 'run';
  const grouping = isGrouped ? parseGrouping(query.by).join() : 'variant';
  const groups = useMemo(() => makeGroups(runs, grouping), [runs, grouping]);
  const control = groups.some(({ name }) => name === CONTROL_ARM) ? CONTROL_ARM : '';
  const view = { ...query, baseline: query.baseline || control };
  const drawnIds = useMemo(() => takeFairShare(groups, MAX_RUNS), [groups]);
  const looks = isGrouped ? groupLooks(groups) : makeRelatedLooks(selectDrawnGroups(groups, drawnIds));
  const names = useMemo(() => makeRunNames(groups), [runs.map(runTitle).join('|'), groups]);
  const configs = useMemo(() => keepOnePerConfig(runs.filter(({ id }) => drawnIds.includes(id))), [runs, drawnIds]);
  const warning = (/** @type {string} */ metric) =>
    scaleWarning(findScalesApart(metric, findMetricInfo(metric), configs));
  const visible = new Map([...looks].filter(([key]) => !view.hide.includes(key)));
  const available = listMetrics(runs);
  const sections = view.q ? groupBySection(filterMetrics(available, view.q)) : chooseSections(available, view.metrics);
  const metrics = [...new Set(sections.flatMap((section) => section.metrics))];
  const hasHeadings = metrics.length > MAX_WITHOUT_HEADINGS && (sections.length > 1 || !view.metrics.includes('key'));
  const curves = {
    x: view.x,
    smoothing: view.smoothing,
    log: view.log,
    zoom: view.zoom,
    groupBy: isGrouped ? grouping : '',
    band: chooseBand(view.band, groups),
    seeds: isGrouped && view.seeds,
    onsets: view.onsets,
    at: view.at,
    values: view.values,
    counts: view.counts,
    outliers: view.outliers,
    tune: view.tune,
    order: view.order,
    baseline: findBaselineKey(view.baseline, groups, isGrouped),
  };
  useJumpToPanels(available, (panel) => change({ tab: 'curves', panel }, { push: true }));
  const onsets = listOnsets(runs);
  const findLook = (/** @type {Api.RunItem} */ { id }) => looks.get(isGrouped ? (names.get(`group:${id}`) ?? '') : id);
  useKeys({
    v: {
      label: 'means of groups or individual runs',
      run: () => change({ by: isGrouped ? 'run' : 'variant', hide: [] }),
    },
    d: { label: 'show or hide individual seeds', run: () => change({ seeds: !view.seeds }) },
    ...makeCurveKeys(view, change),
  });

  const [isReporting, setReporting] = useState(false);
  /** @param {string | null} run @param {number} step @param {string} metric @param {string} group */
  const onPoint = (run, step, metric, group) => {
    if (run) return openRollouts(run, step, metric);
    const first = groups.find(({ name }) => name === group)?.runs[0];
    if (!first) return undefined;
    if (ids.length > groups.length) say(`A mean has no rollouts. Showing seed ${first.seed}`);
    return openRollouts(first.id, step, metric);
  };

  const tabContents = {
    curves: () => html`
      <h2 class="visually-hidden">Curves</h2>
      <${CompareControls}
        view=${view}
        change=${change}
        available=${available}
        groups=${groups}
        runs=${runs}
        onsets=${onsets.length > 0}
      >
      <${Cut} runs=${ids.length} groups=${groups} drawnIds=${drawnIds} />
      <${Legend}
        looks=${looks}
        names=${names}
        groups=${groups}
        drawnIds=${drawnIds}
        isGrouped=${isGrouped}
        hiddenKeys=${view.hide}
        change=${change}
      />
      ${
        metrics.length
          ? html`<${Panels}
            metrics=${metrics}
            runs=${drawnIds}
            view=${curves}
            change=${change}
            looks=${visible}
            names=${names}
            onsets=${onsets}
            sections=${hasHeadings ? sections : null}
            enlargedMetric=${view.panel}
            onPoint=${onPoint}
            warning=${warning}
          />`
          : html`<${Empty} title=${emptyTitle(available, view.q)}>
            ${
              available.length
                ? 'Choose some in the list of metrics, or search.'
                : html`Curves appear after the first training step. <${QueuedRuns} runs=${runs} />`
            }
          <//>`
      }
      <//>
    `,
    results: () => html`
      <${Matrix}
        groups=${groups}
        grouping=${grouping}
        runs=${runs}
        view=${view}
        change=${change}
        available=${available}
        looks=${groupLooks(groups)}
      />
      <${SweepGrid}
        groups=${groups}
        available=${available}
        metric=${view.grid}
        onMetric=${(/** @type {string} */ metric) => change({ grid: metric })}
      />
      <${Suites} runs=${runs} available=${available} />
    `,
    settings: () => html`
      <${ConfigDifferences} groups=${groups} />
      <${Relations} runs=${runs} view=${view} change=${change} findLook=${findLook} />
    `,
    signal: () => html`<${SignalBudgets} runs=${runs} />`,
    search: () => html`<${Search} experiment=${experiment} runs=${runs.length} onRuns=${onRuns} />`,
    trial: () => html`<${TrialsOfExperiment} experiment=${experiment} />`,
  };
  return html`<div class="page compare">
    <${Head}
      runs=${runs}
      groups=${groups}
      grouping=${grouping}
      query=${view.query}
      createdAt=${createdAt}
      views=${html`<${ComparisonViews} view=${view} experiment=${experiment} runs=${ids} names=${Object.keys(SPEC)} />`}
      onSettings=${() => change({ tab: 'settings' }, { push: true })}
      onReport=${metrics.length ? () => setReporting(true) : undefined}
    />
    <${Tabs}
      label="Parts of the comparison"
      tabs=${tabs}
      activeTab=${at}
      onGo=${(/** @type {string} */ tab) => change({ tab }, { push: true })}
    />
    <${TabPanel} activeTab=${at}>${tabContents[at]()}<//>
    ${
      isReporting &&
      html`<${ReportDialog}
        title=${makeTitle(runs)}
        groups=${groups}
        runs=${drawnIds}
        metrics=${metrics}
        view=${curves}
        baseline=${findGroup(view.baseline, groups)?.name ?? groups[0].name}
        matrix=${view}
        looks=${visible}
        names=${names}
        onClose=${() => setReporting(false)}
      />`
    }
  </div>`;
}

/** @param {{runs: Api.RunItem[]}} props */
function QueuedRuns({ runs }) {
  const count = runs.filter(({ status }) => status === 'queued').length;
  if (!count) return null;
  return html`<a href="/queue">${plural(count, 'run')}</a> ${count === 1 ? 'is' : 'are'} queued.`;
}

/** @param {string[]} available @param {string} query */
const emptyTitle = (available, query) => {
  if (!available.length) return 'No values recorded';
  return query ? `No metric contains “${query}”` : 'No metrics selected';
};

const MAX_EVALUATED = 50;

/**
 * The suites of the runs side by side, if any run was evaluated on suites.
 * @param {{runs: Api.RunItem[], available: string[]}} props
 */
const Suites = ({ runs, available }) =>
  available.some((metric) => /^eval\/(?!accuracy\/)[^/]+\//.test(metric)) &&
  html`<section class="card section run-part" aria-labelledby="compare-suites">
    <h2 id="compare-suites">Evaluations</h2>
    <${EvaluationTable}
      runs=${runs.slice(0, MAX_EVALUATED).map((run) => ({ id: run.id, name: runTitle(run) }))}
      empty=${html`<p class="quiet">No results yet.</p>`}
    />
    ${
      runs.length > MAX_EVALUATED &&
      html`<p class="quiet">
        Showing the first ${MAX_EVALUATED} of ${plural(runs.length, 'run')}.
      </p>`
    }
  </section>`;

/**
 * A note that not all runs are in the curves.
 * @param {{runs: number, groups: Group[], drawnIds: string[]}} props `drawnIds`: ids of runs
 */
function Cut({ runs, groups, drawnIds }) {
  if (drawnIds.length >= runs) return null;
  const isDrawn = new Set(drawnIds);
  const drawnGroupCount = groups.filter(({ runs: inside }) => inside.some(({ id }) => isDrawn.has(id))).length;
  return html`<p class="compare-cut quiet" role="note">
    Showing curves of ${formatCount(drawnIds.length)} of ${plural(runs, 'run')}, the most that can be drawn at once,
    ${
      drawnGroupCount < groups.length
        ? ` from ${formatCount(drawnGroupCount)} of ${plural(groups.length, 'group')}. Group by fewer fields to see them all.`
        : ' taken evenly from every group.'
    }
    ${' '}The other tabs include all runs.
  </p>`;
}
