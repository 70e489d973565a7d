/** The curves next to the table of runs. */
import { html } from '../../dom.js';
import { groupLooks } from '../../app/state.js';
import { KEY_METRICS, groupBySection, filterMetrics } from '../../lib/metrics.js';
import { isEvaluation, listMetrics } from '../../lib/runs/fields.js';
import { chooseBand, makeGroups, makeRunNames } from '../../lib/runs/groups.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { CurveToolbar, MetricSearch } from '../curves/controls.js';
import { Icon } from '../shared/icons.js';
import { Menu } from '../shared/overlay.js';
import { Panels } from '../curves/panels.js';
import { Segments } from '../shared/marks.js';

/** @typedef {import('../../data/run_list.js').RunList} RunList */
/** @typedef {ReturnType<typeof import('../../data/run_list.js').useUnlistedRuns>} UnlistedRuns */

/**
 * Returns the key of grouping.js for a grouping of the table, or '' if curves cannot be averaged by it.
 * @param {string} group
 */
const findMeanKey = (group) => (group === 'status' ? '' : group.replace(/^config:/, 'config.'));

/**
 * Returns the existing key metrics, or the first four as placeholders before any exists.
 * @param {string[]} available @param {{metrics: string, all: boolean}} view
 */
function chooseMetrics(available, { metrics, all }) {
  if (metrics) return filterMetrics(available, metrics);
  if (all) return available;
  const keys = KEY_METRICS.filter((metric) => available.includes(metric));
  return keys.length ? keys : KEY_METRICS.slice(0, 4);
}

/**
 * @param {{view: import('../../views/runs.js').RunsView, change: Function, runs: RunList,
 *   unlisted: UnlistedRuns, shownIds: string[], looks: Map<string, import('../../lib/colours.js').Look>,
 *   names: Map<string, string>,
 *   compare: (ids: string[]) => void}} props
 */
export function RunsCharts({ view, change, runs, unlisted, shownIds, looks, names, compare }) {
  const drawnRuns = [...runs.items, ...unlisted.runs].filter(({ id }) => looks.has(id));
  const available = listMetrics(drawnRuns);
  const metrics = chooseMetrics(available, view);
  const { x, smoothing, log, zoom, at, values, counts, baseline, outliers, tune, order } = view;
  const groupBy = findMeanKey(view.group);
  const groups = groupBy ? makeGroups(drawnRuns, groupBy) : [];
  const means = { groupBy, band: groupBy ? chooseBand('auto', groups) : '' };
  const curves = { x, smoothing, log, zoom, at, values, counts, baseline, outliers, tune, order, ...means };
  if (runs.loaded && !runs.items.length && !shownIds.length) return null;
  return html`<section class="runs-charts" aria-label="Curves">
    <h2 class="visually-hidden">Curves</h2>
    <div class="runs-charts-head toolbar">
      <${ShownMenu} runs=${runs} shownIds=${shownIds} unlisted=${unlisted} change=${change} />
      <button
        class="button"
        disabled=${!shownIds.length}
        onClick=${() => compare(shownIds)}
        title="Mean and spread by variant, config differences (c)"
      >
        <${Icon} name="chart" /> Compare shown
      </button>
      <${CurveToolbar}
        view=${view}
        change=${change}
        available=${available}
        first=${html`<${MetricSearch} query=${view.metrics} onChange=${(/** @type {string} */ words) => change({ metrics: words })} />`}
      >
        <${Segments}
          label="Metrics"
          value=${view.all ? 'all' : 'key'}
          options=${[{ value: 'key', label: 'key' }, { value: 'all', label: `all ${available.length || ''}` }]}
          onChange=${(/** @type {string} */ value) => change({ all: value === 'all', metrics: '' })}
        />
      <//>
    </div>
    ${
      view.metrics && !metrics.length
        ? html`<p class="runs-nothing faint">No matching metrics.</p>`
        : html`<${Panels}
          metrics=${metrics}
          runs=${shownIds}
          view=${curves}
          change=${change}
          looks=${groupBy ? groupLooks(groups) : looks}
          names=${groupBy ? makeRunNames(groups) : names}
          sections=${view.all || view.metrics ? groupBySection(metrics) : null}
          enlargedMetric=${view.panel}
        />`
    }
  </section>`;
}

/** @param {{runs: RunList, shownIds: string[], unlisted: UnlistedRuns, change: Function}} props */
function ShownMenu({ runs, shownIds, unlisted, change }) {
  const ids = runs.items.map(({ id }) => id);
  const trainedIds = runs.items.filter((run) => !isEvaluation(run)).map(({ id }) => id);
  const unlistedCount = shownIds.filter((id) => !ids.includes(id)).length;
  const hiddenCount = ids.filter((id) => !trainedIds.includes(id) && !shownIds.includes(id)).length;
  const hiddenText = hiddenCount && `${plural(hiddenCount, 'check or evaluation', 'checks and evaluations')} hidden`;
  const notes = [
    unlistedCount && `${formatCount(unlistedCount)} not in this list`,
    unlisted.missing.length && `${formatCount(unlisted.missing.length)} deleted`,
  ]
    .filter(Boolean)
    .join(', ');
  const item = (
    /** @type {string} */ label,
    /** @type {string[] | undefined} */ show,
    /** @type {() => void} */ close,
  ) => html`<button
    class="menu-item"
    onClick=${() => {
      close();
      change({ show });
    }}
  >
    ${label}
  </button>`;
  return html`<${Menu}
    label=${html`
      <${Icon} name="eye" />${' '}
      <span>
        <b>${formatCount(shownIds.length)}</b>${' '}
        ${unlistedCount ? '' : `of ${formatCount(Math.max(runs.total, ids.length))} `}shown
        ${notes && ` (${notes})`}
      </span>
    `}
  >
    ${(close) => html`
      ${hiddenText && html`<p class="faint">${hiddenText} (no curves)</p>`}
      ${item('First 10 in the list', undefined, close)}
      ${item('First 50 in the list', trainedIds.slice(0, 50), close)}
      ${ids.length <= 200 && item(`All ${ids.length}`, ids, close)}
      ${item('None', [], close)}
    `}
  <//>`;
}
