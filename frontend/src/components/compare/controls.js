/** The controls and the legend of Compare. */
import { html, useState } from '../../dom.js';
import { formatCount } from '../../lib/text/format.js';
import { lookup } from '../../lib/lookup.js';
import { SEEDS_OF_INTERVAL, chooseBand, seedsText } from '../../lib/runs/groups.js';
import { BAND_NAMES } from '../../charts/badge.js';
import { highlight } from '../../charts/crosshair.js';
import { GroupBy } from './group_by.js';
import { CurveToolbar, MetricSearch, Switch } from '../curves/controls.js';
import { MetricTreeMenu, WithMetricTree } from '../curves/metric_tree.js';
import { Select, Swatch } from '../shared/marks.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */

const makeBandOptions = (/** @type {Group[]} */ groups) => [
  { value: 'auto', label: `auto: ${lookup(BAND_NAMES, chooseBand('auto', groups))}` },
  ...Object.entries(BAND_NAMES).map(([value, label]) => ({ value, label })),
  { value: 'none', label: 'none' },
];

/**
 * The toolbar with the charts and their metric tree below it.
 * @param {{view: import('../../views/compare.js').CompareView, change: (changes: object) => void,
 *   available: string[], groups: Group[], runs: Api.RunItem[], onsets: boolean, children?: any}} props `onsets`:
 *   whether there are any
 */
export function CompareControls({ view, change, available, groups, runs, onsets, children }) {
  const isGrouped = view.by !== 'run';
  const tree = { available, chosenNames: view.metrics, query: view.q, change };
  return html`
    <${CurveToolbar}
      view=${view}
      change=${change}
      available=${available}
      onsets=${onsets}
      first=${html`
        <${MetricTreeMenu} ...${tree} />
        <${MetricSearch} query=${view.q} onChange=${(/** @type {string} */ q) => change({ q })} />
        <${GroupBy} grouping=${view.by} runs=${runs} onChange=${(/** @type {string} */ by) => change({ by, hide: [], baseline: '' })} />
      `}
      display=${isGrouped && html`<${BandRows} view=${view} change=${change} groups=${groups} />`}
    />
    <${WithMetricTree} ...${tree}>${children}<//>
  `;
}

/** @param {{view: import('../../views/compare.js').CompareView, change: (changes: object) => void, groups: Group[]}} props */
function BandRows({ view, change, groups }) {
  const name = lookup(BAND_NAMES, chooseBand(view.band, groups));
  return html`
    <div class="display-band">
      <${Select}
        label="band"
        value=${view.band}
        options=${makeBandOptions(groups)}
        onChange=${(/** @type {string} */ band) => change({ band })}
      />
      <p class="faint">
        ${name ? `Drawn: ${name}, n ${seedsText(groups)}.` : 'No band is drawn.'}${' '}
        Auto takes the interval from ${SEEDS_OF_INTERVAL} seeds on.
      </p>
    </div>
    <${Switch} isOn=${view.seeds} onChange=${() => change({ seeds: !view.seeds })} title="The runs behind each mean (d)">
      single seeds
    <//>
  `;
}

const MAX_ENTRIES = 40;

const countText = (allCount, drawnCount) =>
  drawnCount < allCount ? `n ${formatCount(drawnCount)} of ${formatCount(allCount)}` : `n ${formatCount(allCount)}`;

/**
 * The legend, with one entry per line. A click hides a line, and hovering highlights it in all panels.
 * @param {{looks: Map<string, import('../../lib/colours.js').Look>, names: Map<string, string>, groups: Group[],
 *   drawnIds: string[], isGrouped: boolean, hiddenKeys: string[], change: Function}} props `drawnIds`: ids of runs
 */
export function Legend({ looks, names, groups, drawnIds, isGrouped, hiddenKeys, change }) {
  const [all, setAll] = useState(false);
  const isDrawn = new Set(drawnIds);
  const counts = new Map(
    groups.map(({ name, runs }) => [name, countText(runs.length, runs.filter(({ id }) => isDrawn.has(id)).length)]),
  );
  const entries = [...looks].slice(0, all ? Infinity : MAX_ENTRIES);
  const toggle = (key) =>
    change({
      hide: hiddenKeys.includes(key) ? hiddenKeys.filter((hiddenKey) => hiddenKey !== key) : [...hiddenKeys, key],
    });
  const showOnly = (key) => change({ hide: [...looks.keys()].filter((lineKey) => lineKey !== key) });
  return html`<div class="legend" role="group" aria-label="Lines" onMouseLeave=${() => highlight(null)}>
    ${entries.map(
      ([key, look]) => html`<button
        key=${key}
        class="legend-item"
        aria-pressed=${!hiddenKeys.includes(key)}
        title="Click to show or hide; double-click to show only this"
        onClick=${() => toggle(key)}
        onDblClick=${() => showOnly(key)}
        onMouseEnter=${() => highlight(hiddenKeys.includes(key) ? null : key)}
      >
        <${Swatch} look=${look} isOff=${hiddenKeys.includes(key)} />
        <span>${names.get(key) ?? key}</span>
        ${isGrouped && html`<span class="faint">${counts.get(key)}</span>`}
      </button>`,
    )}
    ${
      entries.length < looks.size &&
      html`<button class="button-quiet" onClick=${() => setAll(true)}>
        ${formatCount(looks.size - entries.length)} more
      </button>`
    }
    ${
      hiddenKeys.length > 0 &&
      html`<button class="button-quiet" onClick=${() => change({ hide: [] })}>
        Show all
      </button>`
    }
  </div>`;
}
