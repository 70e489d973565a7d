/** Controls and legend of Compare. */
import { html, useState } from '../../dom.js';
import { bySection } from '../../lib/metrics.js';
import { formatCount } from '../../lib/text/format.js';
import { bandOf } from '../../lib/runs/groups.js';
import { highlight } from '../../charts/crosshair.js';
import { GroupBy } from './group_by.js';
import { CurveControls } from '../curves/controls.js';
import { Segments, Select, Swatch } from '../shared/marks.js';

const BANDS = [
  { value: 'ci95', label: '95 % interval' },
  { value: 'std', label: 'standard deviation' },
  { value: 'stderr', label: 'standard error' },
  { value: 'minmax', label: 'min to max' },
  { value: 'none', label: 'none' },
];

/** @typedef {import('../../lib/runs/groups.js').Group} Group */

const bandOptions = (/** @type {Group[]} */ groups) => [
  { value: 'auto', label: `auto: ${BANDS.find(({ value }) => value === bandOf('auto', groups))?.label}` },
  ...BANDS,
];

/**
 * @param {{view: import('../../views/compare.js').CompareView, change: Function, available: string[],
 *   groups: Group[], runs: Api.RunItem[], onsets: boolean}} props `onsets`: whether there are any
 */
export function CompareControls({ view, change, available, groups, runs, onsets }) {
  const isGrouped = view.by !== 'run';
  return html`<div class="compare-controls">
    <div class="toolbar">
      <${Segments}
        label="Lines"
        value=${isGrouped ? 'variant' : 'run'}
        options=${[{ value: 'variant', label: 'means' }, { value: 'run', label: 'individual runs' }]}
        onChange=${(by) => change({ by, hide: [] })}
      />
      ${
        isGrouped &&
        html`
          <${GroupBy} by=${view.by} runs=${runs} onChange=${(by) => change({ by, hide: [], baseline: '' })} />
          <${Select}
            label="band"
            value=${view.band}
            options=${bandOptions(groups)}
            onChange=${(band) => change({ band })}
          />
          <button
            class="button-quiet"
            aria-pressed=${view.seeds}
            onClick=${() => change({ seeds: !view.seeds })}
          >
            seeds
          </button>
        `
      }
      <${CurveControls} view=${view} change=${change} available=${available} onsets=${onsets} />
    </div>
    <${Sections} view=${view} change=${change} available=${available} />
  </div>`;
}

function Sections({ view, change, available }) {
  const options = [
    { name: 'key', count: 0 },
    ...bySection(available).map(({ section, metrics }) => ({ name: section, count: metrics.length })),
  ];
  const toggle = (name) =>
    change({
      q: '',
      metrics: view.metrics.includes(name) ? view.metrics.filter((old) => old !== name) : [...view.metrics, name],
    });
  return html`<div class="chips" role="group" aria-label="Metrics by section">
    <input
      class="field"
      type="search"
      aria-label="Search metrics"
      placeholder="Search metrics"
      value=${view.q}
      onInput=${(event) => change({ q: event.target.value })}
    />
    ${options.map(
      ({ name, count }) => html`<button
        key=${name}
        class="chip"
        aria-pressed=${!view.q && view.metrics.includes(name)}
        onClick=${() => toggle(name)}
      >
        ${name === 'key' ? 'key metrics' : name}
        ${
          count > 0 &&
          html`
            ${' '}
            <span class="faint">${count}</span>
          `
        }
      </button>`,
    )}
  </div>`;
}

const MAX_ENTRIES = 40;

const countText = (all, drawn) =>
  drawn < all ? `n ${formatCount(drawn)} of ${formatCount(all)}` : `n ${formatCount(all)}`;

/**
 * One entry per line; a click hides it, hovering lights it in all panels.
 * @param {{looks: Map<string, import('../../lib/colours.js').Look>, names: Map<string, string>, groups: Group[],
 *   drawn: string[], isGrouped: boolean, hidden: string[], change: Function}} props `drawn`: ids of runs
 */
export function Legend({ looks, names, groups, drawn, isGrouped, hidden, change }) {
  const [all, setAll] = useState(false);
  const isDrawn = new Set(drawn);
  const counts = new Map(
    groups.map(({ name, runs }) => [name, countText(runs.length, runs.filter(({ id }) => isDrawn.has(id)).length)]),
  );
  const entries = [...looks].slice(0, all ? Infinity : MAX_ENTRIES);
  const toggle = (key) =>
    change({ hide: hidden.includes(key) ? hidden.filter((hiddenKey) => hiddenKey !== key) : [...hidden, key] });
  const showOnly = (key) => change({ hide: [...looks.keys()].filter((lineKey) => lineKey !== key) });
  return html`<div class="legend" role="group" aria-label="Lines" onMouseLeave=${() => highlight(null)}>
    ${entries.map(
      ([key, look]) => html`<button
        key=${key}
        class="legend-item"
        aria-pressed=${!hidden.includes(key)}
        title="Click to show or hide; double-click to show only this"
        onClick=${() => toggle(key)}
        onDblClick=${() => showOnly(key)}
        onMouseEnter=${() => highlight(hidden.includes(key) ? null : key)}
      >
        <${Swatch} look=${look} off=${hidden.includes(key)} />
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
      hidden.length > 0 &&
      html`<button class="button-quiet" onClick=${() => change({ hide: [] })}>
        Show all
      </button>`
    }
  </div>`;
}
