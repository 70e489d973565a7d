/** Controls and legend of Compare. */
import { html } from '../dom.js';
import { bySection } from '../lib/metrics.js';
import { highlight } from '../charts/draw.js';
import { copyText } from '../actions.js';
import { CurveControls } from './curve_controls.js';
import { Icon } from './icons.js';
import { Segments, Select, Swatch } from './marks.js';

const BANDS = [{ value: 'ci95', label: '95 % interval' }, { value: 'std', label: 'standard deviation' }, { value: 'stderr', label: 'standard error' },
  { value: 'minmax', label: 'min to max' }, { value: 'none', label: 'none' }];

/** @param {{view: any, change: Function, available: string[]}} props */
export function CompareControls({ view, change, available }) {
  const isGrouped = view.by === 'variant';
  return html`<div class="compare-controls">
    <div class="toolbar">
      <${Segments} label="Lines" value=${view.by} options=${[{ value: 'variant', label: 'mean by variant' }, { value: 'run', label: 'single runs' }]} onChange=${(by) => change({ by, hide: [] })} />
      ${isGrouped && html`<${Select} label="band" value=${view.band} options=${BANDS} onChange=${(band) => change({ band })} />
        <button class="button-quiet" aria-pressed=${view.seeds} onClick=${() => change({ seeds: !view.seeds })}>seeds</button>`}
      <${CurveControls} view=${view} change=${change} />
      <span class="spacer"></span>
      <button class="button" onClick=${() => copyText(location.href, 'Link')}><${Icon} name="link" /> Copy link</button>
    </div>
    <${Sections} view=${view} change=${change} available=${available} />
  </div>`;
}

function Sections({ view, change, available }) {
  const options = [{ name: 'key', count: 0 }, ...bySection(available).map(({ section, metrics }) => ({ name: section, count: metrics.length }))];
  const toggle = (name) => change({ metrics: view.metrics.includes(name) ? view.metrics.filter((old) => old !== name) : [...view.metrics, name] });
  return html`<div class="chips" role="group" aria-label="Metrics by section">${options.map(({ name, count }) => html`<button key=${name} class="chip" aria-pressed=${view.metrics.includes(name)} onClick=${() => toggle(name)}>
    ${name === 'key' ? 'key metrics' : name}${count > 0 && html` <span class="faint">${count}</span>`}</button>`)}</div>`;
}

/** One entry per line; a click hides it, hovering lights it in all panels. */
export function Legend({ looks, names, groups, isGrouped, hidden, change }) {
  const counts = new Map(groups.map(({ name, runs }) => [name, runs.length]));
  const toggle = (key) => change({ hide: hidden.includes(key) ? hidden.filter((old) => old !== key) : [...hidden, key] });
  const only = (key) => change({ hide: [...looks.keys()].filter((other) => other !== key) });
  return html`<div class="legend" role="group" aria-label="Lines" onMouseLeave=${() => highlight(null)}>
    ${[...looks].map(([key, look]) => html`<button key=${key} class="legend-item" aria-pressed=${!hidden.includes(key)} title="Click: hide or show; double click: only this"
      onClick=${() => toggle(key)} onDblClick=${() => only(key)} onMouseEnter=${() => highlight(hidden.includes(key) ? null : key)}>
      <${Swatch} look=${look} off=${hidden.includes(key)} /><span>${names.get(key) ?? key}</span>${isGrouped && html`<span class="faint">n ${counts.get(key)}</span>`}</button>`)}
    ${hidden.length > 0 && html`<button class="button-quiet" onClick=${() => change({ hide: [] })}>Show all</button>`}
  </div>`;
}
