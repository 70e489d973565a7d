/**
 * The metric tree next to the charts, with sections that fold, checkboxes that add charts, and names that show only
 * one.
 */
import { html, useState } from '../../dom.js';
import { aboutMetric } from '../../app/state.js';
import { chosenMetrics, keyMetricsOf, withMetrics } from '../../lib/metric_choice.js';
import { bySection, matching } from '../../lib/metrics.js';
import { formatCount } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Menu } from '../shared/overlay.js';

/**
 * @typedef {{available: string[], chosen: string[], q: string,
 *   change: (changes: {metrics: string[], q?: string}) => void}} TreeProps
 *   `chosen`: in the format of lib/metric_choice.js; `q`: the search
 */

/**
 * Charts with their metric tree on the left. If there is no room for it, the tree is a menu in the toolbar.
 * @param {TreeProps & {children?: any}} props
 */
export const WithMetricTree = ({ children, ...tree }) => html`<div class="with-tree">
  <nav class="tree-beside" aria-label="Metrics"><${MetricTree} ...${tree} /></nav>
  <div class="charts-beside">${children}</div>
</div>`;

/** The tree as a menu, for narrow pages. @param {TreeProps} props */
export const MetricTreeMenu = (props) => html`<span class="tree-menu">
  <${Menu} label="Metrics" title="Choose metrics"><${MetricTree} ...${props} /><//>
</span>`;

/** @param {TreeProps} props */
function MetricTree({ available, chosen, q, change }) {
  const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
  const matches = matching(available, q);
  const keys = keyMetricsOf(available);
  const drawn = new Set(chosenMetrics(available, chosen));
  const showOnly = (/** @type {string} */ name) => change({ metrics: [name], q: '' });
  const set = (/** @type {string[]} */ metrics, /** @type {boolean} */ on) =>
    change({ metrics: withMetrics(available, chosen, metrics, on) });
  const fold = (/** @type {string} */ section) => {
    const next = new Set(open);
    if (!next.delete(section)) next.add(section);
    setOpen(next);
  };
  return html`<div class="metric-tree">
    <div class="tree-row">
      <button class="tree-name" aria-pressed=${!q && chosen.join() === 'key'} onClick=${() => showOnly('key')}>
        key metrics
      </button>
      <span class="faint">${formatCount(keys.length)}</span>
    </div>
    <div class="tree-row">
      <button class="tree-name" aria-pressed=${!q && chosen.join() === 'all'} onClick=${() => showOnly('all')}>
        all metrics
      </button>
      <span class="faint">${formatCount(available.length)}</span>
    </div>
    <ul>
      ${bySection(matches).map(({ section, metrics }) => {
        const isOpen = Boolean(q) || open.has(section);
        return html`<li key=${section}>
          <div class="tree-row">
            <button
              class="tree-fold"
              aria-expanded=${isOpen}
              aria-label=${`Metrics of ${section}`}
              onClick=${() => fold(section)}
            >
              <${Icon} name=${isOpen ? 'down' : 'right'} size=${12} />
            </button>
            <${Box} of=${metrics} drawn=${drawn} label=${`Show ${section}`} set=${set} />
            <button class="tree-name" title=${`Show only ${section}`} onClick=${() => showOnly(section)}>
              <bdi>${section}</bdi>
            </button>
            <span class="faint">${formatCount(metrics.length)}</span>
          </div>
          ${
            isOpen &&
            html`<ul>
              ${metrics.map(
                (metric) => html`<li class="tree-row is-leaf" key=${metric}>
                  <${Box} of=${[metric]} drawn=${drawn} label=${`Show ${metric}`} set=${set} />
                  <button
                    class="tree-name"
                    title=${`${metric}: show only this. ${aboutMetric(metric)?.meaning ?? ''}`}
                    onClick=${() => showOnly(metric)}
                  >
                    <bdi>${metric.startsWith(`${section}/`) ? metric.slice(section.length + 1) : metric}</bdi>
                  </button>
                </li>`,
              )}
            </ul>`
          }
        </li>`;
      })}
    </ul>
    ${!matches.length && html`<p class="faint">No matching metric.</p>`}
  </div>`;
}

/**
 * A checkbox for several metrics, half checked if only some of them are drawn.
 * @param {{of: string[], drawn: Set<string>, label: string, set: (metrics: string[], on: boolean) => void}} props
 */
function Box({ of: metrics, drawn, label, set }) {
  const count = metrics.filter((metric) => drawn.has(metric)).length;
  return html`<label class="tick">
    <input
      type="checkbox"
      aria-label=${label}
      checked=${count === metrics.length}
      indeterminate=${count > 0 && count < metrics.length}
      onChange=${() => set(metrics, count < metrics.length)}
    />
  </label>`;
}
