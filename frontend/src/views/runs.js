/** Runs: the table of all runs and, next to it, the curves of the selected runs. */
import { html, useEffect, useMemo, useRef, useState } from '../dom.js';
import { navigate, useQuery } from '../app/router.js';
import { useRuns, useUnlistedRuns } from '../data/run_list.js';
import { get } from '../data/api.js';
import { isNarrow, mayChange, makeRelatedLooks, sayError, useJumpToPanels } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { useKeys } from '../app/keys.js';
import { choice, flag, list, text } from '../lib/url.js';
import { comparisonAddress } from '../lib/runs/addresses.js';
import { makeGroups } from '../lib/runs/groups.js';
import { makeRunField, isEvaluation, listMetrics, runTitle } from '../lib/runs/fields.js';
import { VERDICT_NAMES } from '../lib/runs/verdicts.js';
import { highlight } from '../charts/crosshair.js';
import { CURVE_SPEC, makeCurveKeys } from '../components/curves/controls.js';
import { runColumns } from '../components/runs/columns.js';
import { Empty, Failure, Skeleton, Stale } from '../components/shared/states.js';
import { Grid, isHead, withGroups } from '../components/shared/table.js';
import { SelectionBar } from '../components/runs/selection.js';
import { GroupRow, RunFilters, TableTools } from '../components/runs/tools.js';
import { RunsCharts } from '../components/runs/charts.js';

const STATUSES = ['', 'running', 'queued', 'finished', 'failed', 'stopped', 'paused'];
const FIELDS = ['verdict', 'eval/accuracy', 'reward/mean', 'changes', 'created', 'duration'];
const MAX_SHOWN_AT_FIRST = 10;

const SPEC = {
  q: text(),
  status: choice(STATUSES),
  verdict: choice(['', ...VERDICT_NAMES]),
  tag: text(),
  variant: text(),
  experiment: text(),
  archived: flag(),
  trash: flag(),
  sort: text('-created_at'),
  group: text(),
  columns: list(FIELDS),
  show: list(),
  metrics: text(),
  all: flag(),
  table: flag(),
  panel: text(),
  ...CURVE_SPEC,
};

/** @typedef {import('../lib/url.js').Values<typeof SPEC>} RunsView */

/** Returns the parameters that decide which runs are in the list. @param {Omit<Partial<RunsView>, 'show'>} view */
const makeFilter = ({ q, status, verdict, tag, variant, experiment, archived, trash }) => ({
  query: q,
  status,
  verdict,
  tag,
  variant,
  experiment,
  archived: archived && !trash ? 'true' : undefined,
  deleted: trash ? 'true' : undefined,
});

const makeParameters = (
  /** @type {RunsView} */ { q, status, verdict, tag, variant, experiment, archived, trash, sort, columns, group },
) => ({
  ...makeFilter({ q, status, verdict, tag, variant, experiment, archived, trash }),
  sort,
  include: listIncluded([...columns, group]),
});

/** Returns the extra parts of runs that the columns need. @param {string[]} keys */
const listIncluded = (keys) =>
  [keys.some((key) => key.startsWith('config:')) && 'config', keys.includes('changes') && 'changes']
    .filter(Boolean)
    .join() || undefined;

const isFiltered = (/** @type {RunsView} */ { q, status, verdict, tag, variant, experiment, archived, trash }) =>
  Boolean(q || status || verdict || tag || variant || experiment || archived || trash);

/** Returns whether an error belongs to the query. @param {import('../data/api.js').ApiError | null} error */
const isOfQuery = (error) => Boolean(error?.errors.some(({ path }) => path === 'query'));

/** Returns a placeholder for a run that is not loaded yet. @param {string} id @returns {any} */
const makeUnloadedRun = (id) => ({ id, colour: 0, variant: '', config_hash: id });

/** Returns a set with the id added or removed. @param {Set<string>} ids @param {string} id */
const toggleId = (ids, id) => {
  const next = new Set(ids);
  if (!next.delete(id)) next.add(id);
  return next;
};

export function View() {
  useTitle('Runs');
  const [view, change] = useQuery(SPEC);
  const runs = useRuns(makeParameters(view));
  const [selectedIds, setSelectedIds] = useState(/** @type {Set<string>} */ (new Set()));
  const [active, setActive] = useState(/** @type {string | null} */ (null));
  const [renaming, setRenaming] = useState(/** @type {string | null} */ (null));
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));

  const ids = runs.items.map(({ id }) => id);
  const unlisted = useUnlistedRuns(runs.loaded ? (view.show ?? []) : [], runs.items);
  const trainingRuns = runs.items.filter((run) => !isEvaluation(run));
  const trainedIds = trainingRuns.map(({ id }) => id);
  const withCurves = trainingRuns.filter((run) => run.last_step).map(({ id }) => id);
  const shownIds = view.show
    ? view.show.filter((id) => !unlisted.missing.includes(id))
    : [...new Set([...withCurves, ...trainedIds])].slice(0, MAX_SHOWN_AT_FIRST);
  const allRuns = [...runs.items, ...unlisted.runs];
  const runById = useMemo(() => new Map(allRuns.map((run) => [run.id, run])), [runs.items, unlisted.runs.length]);
  const looks = makeRelatedLooks(makeGroups(shownIds.map((id) => runById.get(id) ?? makeUnloadedRun(id))));
  const names = useMemo(
    () => new Map(allRuns.map((run) => [run.id, runTitle(run)])),
    [runs.items, unlisted.runs.length],
  );
  const toggleShown = (/** @type {string} */ id) => change({ show: [...toggleId(new Set(view.show ?? shownIds), id)] });
  const anchor = useRef('');
  const toggleSelected = (/** @type {string} */ id, /** @type {boolean} */ range = false) => {
    const [from, to] = [order.indexOf(anchor.current), order.indexOf(id)].sort((a, b) => a - b);
    const isRange = range && from >= 0 && anchor.current !== id;
    setSelectedIds((old) => (isRange ? new Set([...old, ...order.slice(from, to + 1)]) : toggleId(old, id)));
    anchor.current = id;
  };
  const filter = JSON.stringify(makeFilter(view));
  useEffect(() => setSelectedIds(new Set()), [filter]); // hidden runs must never be changed
  const selectMatching = async () => {
    try {
      setSelectedIds(new Set((await get('/runs/ids', makeFilter(view))).ids));
    } catch (error) {
      sayError(error);
    }
  };
  useEffect(() => () => highlight(null), []);

  const rows = useMemo(
    () => (view.group ? withGroups(runs.items, groupName(view.group, runs.items)) : runs.items),
    [runs.items, view.group],
  );
  const order = rows.flatMap((row) => (isHead(row) ? [] : row.id));
  const step = (/** @type {number} */ offset) =>
    setActive((old) => order[Math.max(0, Math.min(order.length - 1, order.indexOf(old ?? '') + offset))] ?? null);
  const compare = (/** @type {string[]} */ runIds) => navigate(comparisonAddress(runIds));

  useJumpToPanels(listMetrics(runs.items), (panel) => change({ panel }, { push: true }));
  useKeys({
    '/': { label: 'search runs', run: () => search.current?.focus() },
    j: { label: 'next run', run: () => step(1) },
    k: { label: 'previous run', run: () => step(-1) },
    Enter: {
      label: 'open the run',
      run: ({ target }) => {
        const control = target instanceof Element && target.closest('button, a');
        if (control instanceof HTMLElement) control.click();
        else if (active) navigate(`/run/${active}`);
      },
    },
    x: { label: 'select the run', run: () => active && toggleSelected(active) },
    e: { label: 'show or hide its curves', run: () => active && toggleShown(active) },
    ...(mayChange.value && { r: { label: 'rename the run', run: () => setRenaming(active) } }),
    c: {
      label: 'compare the selected or shown runs',
      run: () => compare(selectedIds.size ? [...selectedIds] : shownIds),
    },
    ...makeCurveKeys(view, change),
  });

  const isAllSelected = ids.length > 0 && ids.every((id) => selectedIds.has(id));
  const columns = runColumns({
    fields: view.columns,
    isNarrow: isNarrow.value,
    looks,
    isShown: (id) => looks.has(id),
    toggleShown,
    isSelected: (id) => selectedIds.has(id),
    toggleSelected,
    allSelected: isAllSelected,
    selectAll: (isOn) => setSelectedIds(new Set(isOn ? ids : [])),
    put: runs.put,
    runs: runs.items,
    renaming,
    setRenaming,
  });

  const table = html`<${Grid}
    columns=${columns}
    rows=${rows}
    rowKey=${({ id }) => id}
    label="Runs"
    sort=${view.sort}
    onSort=${(sort) => change({ sort })}
    active=${active}
    onActivate=${({ id }) => setActive(id)}
    isSelected=${({ id }) => selectedIds.has(id)}
    onEnd=${runs.loadMore}
    onHover=${(run) => highlight(run && looks.has(run.id) ? run.id : null)}
    groupRow=${(group) => html`<${GroupRow} group=${group} fields=${view.columns} />`}
  />`;

  return html`<div class="runs">
    <h1 class="visually-hidden">Runs</h1>
    <section class="runs-table" aria-label="Runs">
      <${RunFilters}
        view=${view} change=${change} runs=${runs.items} filter=${makeFilter(view)} search=${search}
        statuses=${STATUSES} usual=${FIELDS} error=${runs.error} />
      ${
        runs.error &&
        runs.loaded &&
        !isOfQuery(runs.error) &&
        html`<${Stale} error=${runs.error} since=${runs.loadedAt} retry=${runs.reload} />`
      }
      <div class="runs-body">
        <${Body} runs=${runs} view=${view} change=${change}>
          ${table}
        <//>
      </div>
      ${
        selectedIds.size > 0
          ? html`<${SelectionBar}
            ids=${[...selectedIds]}
            runs=${runs}
            trash=${view.trash}
            archived=${view.archived}
            selectMatching=${isAllSelected && selectedIds.size < runs.total ? selectMatching : null}
            compare=${compare}
            clear=${() => setSelectedIds(new Set())}
          />`
          : html`<${TableTools} view=${view} change=${change} runs=${runs} defaults=${FIELDS} />`
      }
    </section>
    ${
      !view.table &&
      html`<${RunsCharts}
      view=${view}
      change=${change}
      runs=${runs}
      unlisted=${unlisted}
      shownIds=${shownIds}
      looks=${looks}
      names=${names}
      compare=${compare}
    />`
    }
  </div>`;
}

/**
 * Returns a function with the title of a run's group. Runs of a variant with different configs are in different groups.
 * @param {string} key @param {Api.RunItem[]} runs @returns {(run: Api.RunItem) => string}
 */
const groupName = (key, runs) => {
  if (key === 'variant') {
    const names = new Map(makeGroups(runs).flatMap(({ name, runs: inside }) => inside.map(({ id }) => [id, name])));
    return ({ id }) => `variant ${names.get(id) || '–'}`;
  }
  if (key === 'status') return (run) => `status ${run.status}`;
  const field = makeRunField(key);
  return (run) => `${field.title} ${field.text(run)}`;
};

/**
 * @param {{runs: import('../data/run_list.js').RunList, view: RunsView, change: (changes: object) => void, children?:
 *   any}} props
 */
function Body({ runs, view, change, children }) {
  const mend = isOfQuery(runs.error)
    ? { label: 'Clear the search', run: () => change({ q: '' }) }
    : { label: 'Newest first', run: () => change({ sort: undefined }) };
  const action = runs.error?.status === 422 ? mend : undefined;
  if (!runs.loaded)
    return runs.error
      ? html`<${Failure} error=${runs.error} retry=${runs.reload} action=${action} />`
      : html`<${Skeleton} rows=${14} label="Loading runs" />`;
  if (runs.items.length) return children;
  if (isFiltered(view)) {
    const clear = () =>
      change({ q: '', status: '', verdict: '', tag: '', variant: '', experiment: '', archived: false, trash: false });
    if (view.trash && !isFiltered({ ...view, trash: false }))
      return html`<${Empty}
        title="The trash is empty"
        action=${html`<button class="button" onClick=${clear}>
          Back to runs
        </button>`}
      >
        Deleted runs stay here until you restore them or empty the trash.
      <//>`;
    return html`<${Empty}
      title="No matching runs"
      action=${html`<button class="button" onClick=${clear}>
        Clear the filters
      </button>`}
    >
      Try changing or clearing the filters above.
    <//>`;
  }
  return html`<${Empty}
    title="No runs yet"
    action=${
      mayChange.value &&
      html`
        <a class="button button-primary" href="/launch">
          Launch your first runs
        </a>${' '}
        <a class="button" href="/import">
          Import a log
        </a>
      `
    }
  >
    Choose variants and seeds. Runs start as workers become free, and their curves appear here as they train.
  <//>`;
}
