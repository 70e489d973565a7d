/**
 * The metric tree next to the charts, with sections that fold, checkboxes that add charts, and names that show only
 * one.
 */
import { html, useState } from '../../dom.js';
import { findMetricInfo } from '../../app/state.js';
import { chooseMetrics, listKeyMetrics, withMetrics } from '../../lib/metric_choice.js';
import { groupBySection, filterMetrics } from '../../lib/metrics.js';
import { formatCount } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Menu } from '../shared/overlay.js';

/**
 * @typedef {{available: string[], chosenNames: string[], query: string,
 *   change: (changes: {metrics: string[], q?: string}) => void}} TreeProps
 *   `chosenNames`: in the format of lib/metric_choice.js; `query`: the search
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
function MetricTree({ available, chosenNames, query, change }) {
  const [openSections, setOpenSections] = useState(/** @type {Set<string>} */ (new Set()));
  const matches = filterMetrics(available, query);
  const keys = listKeyMetrics(available);
  const drawnMetrics = new Set(chooseMetrics(available, chosenNames));
  const showOnly = (/** @type {string} */ name) => change({ metrics: [name], q: '' });
  const showMetrics = (/** @type {string[]} */ metrics, /** @type {boolean} */ isShown) =>
    change({ metrics: withMetrics(available, chosenNames, metrics, isShown) });
  const fold = (/** @type {string} */ section) => {
    const next = new Set(openSections);
    if (!next.delete(section)) next.add(section);
    setOpenSections(next);
  };
  return html`<div class="metric-tree">
    <div class="tree-row">
      <button class="tree-name" aria-pressed=${!query && chosenNames.join() === 'key'} onClick=${() => showOnly('key')}>
        key metrics
      </button>
      <span class="faint">${formatCount(keys.length)}</span>
    </div>
    <div class="tree-row">
      <button class="tree-name" aria-pressed=${!query && chosenNames.join() === 'all'} onClick=${() => showOnly('all')}>
        all metrics
      </button>
      <span class="faint">${formatCount(available.length)}</span>
    </div>
    <ul>
      ${groupBySection(matches).map(({ section, metrics }) => {
        const isOpen = Boolean(query) || openSections.has(section);
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
            <${Box} metrics=${metrics} drawnMetrics=${drawnMetrics} label=${`Show ${section}`} onChange=${showMetrics} />
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
                  <${Box} metrics=${[metric]} drawnMetrics=${drawnMetrics} label=${`Show ${metric}`} onChange=${showMetrics} />
                  <button
                    class="tree-name"
                    title=${`${metric}: show only this. ${findMetricInfo(metric)?.meaning ?? ''}`}
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
 * @param {{metrics: string[], drawnMetrics: Set<string>, label: string,
 *   onChange: (metrics: string[], isShown: boolean) => void}} props
 */
function Box({ metrics, drawnMetrics, label, onChange }) {
  const count = metrics.filter((metric) => drawnMetrics.has(metric)).length;
  return html`<label class="tick">
    <input
      type="checkbox"
      aria-label=${label}
      checked=${count === metrics.length}
      indeterminate=${count > 0 && count < metrics.length}
      onChange=${() => onChange(metrics, count < metrics.length)}
    />
  </label>`;
}
