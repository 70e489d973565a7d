/** Many panels in sections, one of which may be enlarged. */
import { html, useState } from '../../dom.js';
import { groupBySection } from '../../lib/metrics.js';
import { findMetricInfo } from '../../app/state.js';
import { Dialog } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { mergeOrder, moveMetric, orderMetrics } from './arrange.js';
import { FigureOnDemand } from './figure_dialog.js';
import { Panel } from './panel.js';
import { pressPinned, usePinnedCursor } from './pinned.js';

/**
 * Panels of these metrics, under headings if `sections` are given. `enlargedMetric` is that of the enlarged panel.
 * @param {{metrics: string[], runs: string[],
 *   view: import('./panel.js').PanelView & {at: number | null, order?: string[]},
 *   change: (changes: object, options?: object) => void, looks:
 *   Map<string, import('../../lib/colours.js').Look>,
 *   names: Map<string, string>, marks?: {step: number, text: string}[],
 *   onsets?: import('../../lib/runs/verdicts.js').Onset[], sections?: {section: string, metrics:
 *   string[]}[] | boolean | null, enlargedMetric: string, onPoint?: Function,
 *   warning?: (metric: string) => string}} props `warning`: returns a warning about comparing the curves of a metric
 */
export function Panels({
  metrics,
  runs,
  view,
  change,
  looks,
  names,
  marks,
  onsets,
  sections = null,
  enlargedMetric,
  onPoint,
  warning = () => '',
}) {
  usePinnedCursor(view, change);
  const onBaseline = (/** @type {string} */ baseline) => change({ baseline });
  const row = (/** @type {string[]} */ rowMetrics) => {
    const orderedMetrics = orderMetrics(rowMetrics, view.order ?? []);
    const move = (/** @type {string} */ metric, /** @type {number} */ newIndex) =>
      change({ order: mergeOrder(view.order ?? [], moveMetric(orderedMetrics, metric, newIndex)) });
    return html`<div class="panels">
      ${orderedMetrics.map((metric, index) =>
        panel(metric, {
          onMove: (/** @type {number} */ offset) => move(metric, index + offset),
          onDrop: (/** @type {string} */ droppedMetric) =>
            orderedMetrics.includes(droppedMetric) && move(droppedMetric, index),
          onExpand: () => change({ panel: metric }, { push: true }),
        }),
      )}
    </div>`;
  };
  const panel = (/** @type {string} */ metric, /** @type {object} */ handlers) => html`<${Panel}
    key=${metric}
    ...${handlers}
    metric=${metric}
    runs=${runs}
    view=${view}
    looks=${looks}
    names=${names}
    marks=${marks}
    onsets=${onsets}
    onPoint=${onPoint}
    warning=${warning(metric)}
    onZoom=${(zoom) => change({ zoom })}
    onBaseline=${onBaseline}
    onTune=${change}
  />`;
  return html`
    ${
      sections
        ? (sections === true ? groupBySection(metrics) : sections).map(
            (section) => html`<${Section} key=${section.section} ...${section} row=${row} />`,
          )
        : row(metrics)
    }
    ${
      enlargedMetric &&
      html`<${EnlargedPanel} metrics=${metrics} metric=${enlargedMetric} change=${change}>
        ${panel(enlargedMetric, { key: `${enlargedMetric} enlarged`, tall: true })}
      <//>`
    }
    <${FigureOnDemand}
      metrics=${metrics}
      runs=${runs}
      view=${view}
      looks=${looks}
      names=${names}
      onsets=${onsets}
    />
  `;
}

/** @param {{section: string, metrics: string[], row: (metrics: string[]) => any}} props */
function Section({ section, metrics, row }) {
  const [isOpen, setIsOpen] = useState(true);
  return html`<section class="panel-section">
    <h2>
      <button aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>
        <${Icon} name=${isOpen ? 'down' : 'right'} size=${12} />
        ${section}
      </button>
      <span class="faint">${metrics.length}</span>
    </h2>
    ${isOpen && row(metrics)}
  </section>`;
}

/** @param {{metrics: string[], metric: string, change: (changes: object) => void, children?: any}} props */
function EnlargedPanel({ metrics, metric, change, children }) {
  const index = metrics.indexOf(metric);
  const go = (/** @type {number} */ offset) => {
    if (metrics[index + offset]) change({ panel: metrics[index + offset] });
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (pressPinned(event)) return;
    if (event.key === 'ArrowLeft') go(-1);
    if (event.key === 'ArrowRight') go(1);
  };
  return html`<div onKeyDownCapture=${keys}>
    <${Dialog} title=${metric} wide onClose=${() => change({ panel: '' })}>
      <p class="quiet">${findMetricInfo(metric)?.meaning}</p>
      <div class="toolbar enlarged-tools">
        <button class="button button-small" disabled=${index <= 0} onClick=${() => go(-1)}>
          <${Icon} name="left" size=${12} /> ${metrics[index - 1] ?? 'first'}
        </button>
        <span class="spacer"></span>
        <button
          class="button button-small"
          disabled=${index < 0 || index + 1 >= metrics.length}
          onClick=${() => go(1)}
        >
          ${metrics[index + 1] ?? 'last'} <${Icon} name="right" size=${12} />
        </button>
      </div>
      ${children}
    <//>
  </div>`;
}
