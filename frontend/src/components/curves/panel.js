/** A panel with one metric of many runs: its title, its curves, and a badge with notes on its data. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../dom.js';
import { navigate } from '../../app/router.js';
import { findMetricInfo, theme } from '../../app/state.js';
import { ApiError } from '../../data/api.js';
import { mountPanel, readShownRange } from '../../charts/draw.js';
import { makeFigure, isOutside } from '../../charts/figure.js';
import { makeChartTheme } from '../../charts/theme.js';
import { findMetricKind } from '../../lib/metrics.js';
import { breakdownAddress, isDecomposable } from '../../lib/breakdown.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { makeNotes, makeChartSettings } from './shown.js';
import { listFiles } from './files.js';
import { DownloadMenu, SettingsMenu } from './tools.js';
import { Corner, Handle, dropHandlers } from './arrange.js';
import { findSize, changeTuning, applyTuning } from './tuning.js';
import { Icon, IconButton } from '../shared/icons.js';
import { useLines } from './lines.js';
import { Values, ValuesUnderPointer, usePinnedHere } from './values.js';

/**
 * @typedef {{x: import('../../lib/series.js').XKind, smoothing: number, groupBy: string, band: string, zoom: [number,
 *   number] | null,
 *   log: string[], seeds?: boolean, onsets?: boolean, values?: boolean, counts?: boolean, baseline?: string,
 *   outliers?: boolean, yRange?: [number, number] | null,
 *   tune?: import('./tuning.js').Tunings}} PanelView `log` holds 'x',
 *   'y' or both; `seeds` adds the single runs to groups; `onsets` shows when goals began to fall; `values` shows the
 *   table below each panel, `counts` what it is made of; `baseline`: key of the line to compare with; `tune`: settings of
 *   single panels
 */

/**
 * Opens the rollouts for a point of a metric's curve, or those of an evaluation if the metric measures one.
 * @param {string | null} run @param {number} step @param {string} [metric]
 */
export const openRollouts = (run, step, metric = '') => {
  const kind = findMetricKind(metric);
  if (run) navigate(rolloutsAddress(run, { step, kind }));
};

/**
 * @param {{metric: string, runs: string[], view: PanelView, looks: import('./lines.js').Looks,
 *   names: Map<string, string>, marks?: {step: number, text: string}[],
 *   onsets?: import('../../lib/runs/verdicts.js').Onset[], onPoint?: (run: string | null, step: number,
 *   metric: string, key: string) => void,
 *   onZoom?: (zoom: [number, number] | null) => void, onBaseline?: (key: string) => void, onExpand?: () => void,
 *   onTune?: (changes: {tune: import('./tuning.js').Tunings}) => void,
 *   onMove?: (by: number) => void, onDrop?: (metric: string) => void, tall?: boolean, warning?: string}} props
 *   `marks`: events of the one run that is drawn; `looks` and `names` by run id (or group name); `names` maps
 *   `group:<run id>` to the group of a run
 */
export function Panel({
  metric,
  runs,
  view: pageView,
  looks,
  names,
  marks,
  onsets,
  onPoint = openRollouts,
  onZoom,
  onBaseline,
  onTune,
  onExpand,
  onMove,
  onDrop,
  tall = false,
  warning = '',
}) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const panel = useRef(/** @type {ReturnType<typeof mountPanel> | null} */ (null));
  const view = applyTuning(pageView, metric);
  const stretch = (/** @type {[number, number] | null} */ y) =>
    onTune?.({ tune: changeTuning(pageView.tune, metric, { y: y ?? undefined }) });
  const handlers = useRef({ onPoint, onZoom, stretch });
  const [isNear, setIsNear] = useState(false);
  handlers.current = { onPoint, onZoom, stretch };
  const { main, all } = useLines(metric, runs, view, { enabled: isNear, points: tall ? 1000 : 500 }, looks, names);
  const metricInfo = findMetricInfo(metric);
  const shade = theme.value;
  const [isOver, setOver] = useState(false);
  const isPinned = usePinnedHere(metric);

  useLayoutEffect(() => {
    if (!element.current) return undefined;
    const mountedPanel = mountPanel(element.current, metric, {
      onPoint: (run, step, key) => handlers.current.onPoint(run, step, metric, key),
      onZoom: (zoom) => handlers.current.onZoom?.(zoom),
      onRange: (y) => handlers.current.stretch(y),
      onNear: setIsNear,
    });
    panel.current = mountedPanel;
    return mountedPanel.dispose;
  }, []);

  const shown = {
    ...makeChartSettings(metric, view, metricInfo),
    marks,
    onsets: view.onsets === false ? [] : onsets,
    titled: tall,
  };
  const look = JSON.stringify(all.map(({ name, look: { colour, dash } }) => [name, colour, dash]));
  useEffect(() => {
    if (!main.loaded && !main.error) return;
    panel.current?.draw(makeFigure(main.loaded ? all : [], { ...shown, theme: makeChartTheme(shade) }));
  }, [
    main.loaded,
    Boolean(main.error),
    look,
    shade,
    JSON.stringify([{ ...view, values: null, counts: null, baseline: null, tune: null, at: null }, marks, onsets]),
    metricInfo,
    ...useIdentity(all.map(({ series }) => series)),
  ]);

  const notes = useMemo(
    () => makeNotes(main.series, all, shown, view, runs.length),
    [...useIdentity(main.series), all.length, runs.length, JSON.stringify(view), metricInfo],
  );
  const files = listFiles({ view, shown, lines: all, notes, about: metricInfo, element: element.current });
  const values = { metric, runs, view, looks, names, drawn: all, unit: shown.unit, enabled: isNear, onBaseline };
  const hasTable = isNear && main.loaded && all.length > 0;
  const isBelow = Boolean(view.values || tall);
  const [wide, high] = tall ? [1, 1] : findSize(pageView.tune, metric);
  return html`<section
    class=${`panel card is-wide-${wide} is-high-${high}`}
    ...${onDrop ? dropHandlers(onDrop) : {}}
    aria-label=${metric}
    data-metric=${metric}
    onMouseEnter=${() => setOver(true)}
    onMouseLeave=${() => setOver(false)}
  >
    <header class="panel-head">
      <h3 title=${metricInfo?.meaning ?? metric}>
        <a class="metric-help" href=${metricInfo?.name ? `/help/metrics#${metricInfo.name}` : '/help/metrics'}>${metric}</a>
        ${
          shown.unit &&
          html`
            ${' '}
            <span>${shown.unit}</span>
          `
        }
      </h3>
      <span class="spacer"></span>
      <span class="panel-tools">
        ${
          onTune &&
          onMove &&
          html`<${Handle} metric=${metric} tune=${pageView.tune} onTune=${onTune} onMove=${onMove} />`
        }
        ${
          onTune &&
          html`<${SettingsMenu}
            metric=${metric}
            tune=${pageView.tune}
            readSeenRange=${() => readShownRange(element.current)}
            notes=${notes}
            change=${onTune}
          />`
        }
        ${all.length > 0 && html`<${DownloadMenu} files=${files} />`}
        ${
          runs.length === 1 &&
          isDecomposable(metric) &&
          html`<a
            class="button-icon"
            title="Why did this change? (zoom to the steps in question first)"
            aria-label="Why did this change?"
            href=${breakdownAddress(runs[0], metric, { zoom: view.x === 'step' ? view.zoom : null })}
          >
            <${Icon} name="question" />
          </a>`
        }
        ${onExpand && html`<${IconButton} icon="expand" label="Enlarge" title="Enlarge" onClick=${onExpand} />`}
      </span>
    </header>
    <div class="panel-body">
      ${main.loading && !main.loaded && html`<div class="panel-loading"></div>`}
      <div class=${`panel-plot${tall ? ' is-tall' : ''}${main.loaded ? '' : ' is-stale'}`} ref=${element}></div>
      <${PanelNote} main=${main} hasRuns=${runs.length > 0} zoom=${view.zoom} onZoom=${onZoom} />
    </div>
    ${hasTable && isBelow && html`<${Values} ...${values} />`}
    ${
      hasTable &&
      !isBelow &&
      html`<div class="values-anchor">
        ${isPinned ? html`<${Values} ...${values} />` : isOver && html`<${ValuesUnderPointer} ...${values} />`}
      </div>`
    }
    ${onTune && onMove && html`<${Corner} metric=${metric} tune=${pageView.tune} onTune=${onTune} />`}
    <${Badge}
      main=${main}
      notes=${tall || view.counts ? notes : notes.filter(({ isUsual }) => !isUsual)}
      warning=${warning}
    />
  </section>`;
}

/** Returns a counter that changes when an item is replaced by another object. @param {object[]} items */
function useIdentity(items) {
  const identity = useRef({ items: /** @type {object[]} */ ([]), round: 0 });
  const { current } = identity;
  if (items.length !== current.items.length || items.some((item, i) => item !== current.items[i])) {
    identity.current = { items, round: current.round + 1 };
  }
  return [identity.current.round];
}

/**
 * @param {{main: ReturnType<typeof useLines>['main'], hasRuns: boolean, zoom: PanelView['zoom'],
 *   onZoom?: (zoom: null) =>
 *   void}} props
 */
function PanelNote({ main, hasRuns, zoom, onZoom }) {
  if (main.error && !main.loaded)
    return html`<div class="panel-note" role="alert">
      <span>${formatError(main.error)}</span>
      <button class="button button-small" onClick=${main.retry}>
        Try again
      </button>
    </div>`;
  if (!hasRuns) return html`<div class="panel-note">No runs selected</div>`;
  if (!main.loaded) return null;
  if (!zoom)
    return main.series.some(({ raw_points: points }) => points > 0)
      ? null
      : html`<div class="panel-note">No values recorded</div>`;
  if (!isOutside(main.series, zoom)) return null;
  return html`<div class="panel-note">
    <span>No data in this range</span>
    ${
      onZoom &&
      html`<button class="button button-small" onClick=${() => onZoom(null)}>
        Show full range
      </button>`
    }
  </div>`;
}

/** Returns one sentence about an error: the message about the metric, else the title. @param {Error} error */
const formatError = (error) => (error instanceof ApiError ? (error.errors[0]?.message ?? error.title) : error.message);

/**
 * Unusual properties of a chart. Properties of most charts are shown in its menu and below the enlarged chart.
 * @param {{main: ReturnType<typeof useLines>['main'], notes: ReturnType<typeof makeNotes>, warning: string}} props
 */
function Badge({ main: { loaded, error, retry }, notes, warning }) {
  const isStale = error && loaded;
  if (!warning && !isStale && !(loaded && notes.length)) return null;
  return html`<footer class="panel-foot">
    ${
      warning &&
      html`<span class="is-warning" role="note">
        ${warning}
      </span>`
    }
    ${
      isStale &&
      html`<span class="is-warning" title=${error.message}>
        refresh failed <button onClick=${retry}>try again</button>
      </span>`
    }
    ${
      loaded &&
      notes.map(({ text, isWarning }) => html`<span class=${isWarning ? 'is-warning' : undefined}>${text}</span>`)
    }
  </footer>`;
}
