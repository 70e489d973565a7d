/** Controls for the drawing of curves: one row and one menu, with the same parameters on every page with panels. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { flag, list, number, range, text } from '../../lib/url.js';
import { isMetricAxis } from '../../lib/series.js';
import { askedFigure } from './figure_dialog.js';
import { tunings } from './tuning.js';
import { Icon } from '../shared/icons.js';
import { Menu } from '../shared/overlay.js';
import { TypedSearch } from '../shared/typed_search.js';

/**
 * Returns the codec of the x axis, which is a kind of axis or a metric.
 * @returns {import('../../lib/url.js').Codec<string>}
 */
function makeAxis() {
  return { initial: 'step', read: (t) => t || undefined, write: (v) => v };
}

/** Parameters in the address of pages with curves. */
export const CURVE_SPEC = {
  x: makeAxis(),
  smoothing: number(0, { min: 0, max: 0.999 }),
  log: list([]),
  zoom: range(),
  onsets: flag(true),
  at: number(/** @type {number | null} */ (null)),
  values: flag(),
  counts: flag(),
  baseline: text(),
  outliers: flag(true),
  tune: tunings(),
  order: list([]),
};

const X_CHOICES = [
  { value: 'step', label: 'step' },
  { value: 'wall', label: 'time' },
  { value: 'tokens', label: 'tokens' },
  { value: 'samples', label: 'samples' },
  { value: 'flops', label: 'FLOPs' },
];
/** Stops of the slider. The closer a stop is to 1, the more its step changes. */
export const SMOOTHING = [
  0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99,
];
const SETTLED_MS = 150;

/** @param {string[]} log @param {'x'|'y'} axis */
const toggleAxis = (log, axis) => (log.includes(axis) ? log.filter((a) => a !== axis) : [...log, axis].sort());

/** @typedef {import('../../lib/url.js').Values<typeof CURVE_SPEC>} CurveView */

/**
 * A row with the metrics, the x axis and the smoothing. All other settings are in the menu *Display*.
 * @param {{view: CurveView, change: (changes: object) => void, available: string[], onsets?: boolean, first?: any,
 *   display?: any, children?: any}} props `available`: metrics, each of which can be the x axis; `onsets`: whether
 *   there are any; `first`: controls before these; `children`: controls after them; `display`: more rows of the menu
 */
export function CurveToolbar({ view, change, available, onsets = false, first, display, children }) {
  return html`<div class="toolbar curve-toolbar" role="group" aria-label="Curves">
    ${first}
    <${XAxis} x=${view.x} available=${available} onChange=${(x) => change({ x, zoom: null, at: null })} />
    <${SmoothingSlider} value=${view.smoothing} onChange=${(smoothing) => change({ smoothing })} />
    <${Menu} label="Display" title="Band, log axes, outliers, values">
      <${Display} view=${view} change=${change} onsets=${onsets}>${display}<//>
    <//>
    ${
      view.zoom &&
      html`<button
        class="button-quiet"
        aria-pressed="true"
        title="Double-clicking a chart also resets the zoom"
        onClick=${() => change({ zoom: null })}
      >
        Reset zoom
      </button>`
    }
    ${children}
    <span class="spacer"></span>
    <button
      class="button"
      aria-label="Figure"
      title="The charts below as a figure for a paper: PDF, SVG, PNG, CSV"
      onClick=${() => {
        askedFigure.value = '';
      }}
    >
      <${Icon} name="download" /> <span class="figure-word">Figure</span>
    </button>
  </div>`;
}

/** @param {{query: string, onChange: (q: string) => void}} props */
export const MetricSearch = ({ query, onChange }) => html`<label class="search metric-search">
  <${Icon} name="search" />
  <${TypedSearch} value=${query} onChange=${onChange} placeholder="Search metrics" />
</label>`;

/** @param {{x: string, available: string[], onChange: (x: string) => void}} props */
function XAxis({ x, available, onChange }) {
  const metrics = [...new Set([...available, ...(isMetricAxis(x) ? [x] : [])])];
  const option = (/** @type {string} */ value, label = value) => html`<option
    key=${value}
    value=${value}
    selected=${value === x}
  >
    ${label}
  </option>`;
  return html`<label class="select">
    <span>x</span>
    <select
      aria-label="x axis"
      title="Training steps, training time, generated tokens, sampled completions, floating-point operations, or a metric"
      value=${x}
      onChange=${(/** @type {any} */ event) => onChange(event.target.value)}
    >
      ${X_CHOICES.map(({ value, label }) => option(value, label))}
      <optgroup label="over a metric">${metrics.map((metric) => option(metric))}</optgroup>
    </select>
  </label>`;
}

/**
 * The smoothing slider. Its value changes immediately, and the curves change when it rests.
 * @param {{value: number, onChange: (smoothing: number) => void}} props
 */
export function SmoothingSlider({ value, onChange }) {
  const [movedValue, setMovedValue] = useState(/** @type {number | null} */ (null));
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (movedValue === value) setMovedValue(null); // a later move is handled separately
  }, [value, movedValue]);
  const shownValue = movedValue ?? value;
  const word = shownValue ? String(shownValue) : 'off';
  const move = (/** @type {any} */ { target }) => {
    const next = SMOOTHING[Number(target.value)];
    setMovedValue(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(next), SETTLED_MS);
  };
  return html`<label class=${`smoothing${shownValue > 0 ? ' is-smoothed' : ''}`}>
    <span>smoothing</span>
    <input
      type="range"
      min="0"
      max=${SMOOTHING.length - 1}
      value=${findNearestStop(shownValue)}
      aria-valuetext=${word}
      title="Exponential moving average of the recorded values"
      onInput=${move}
    />
    <output>${word}</output>
  </label>`;
}

/**
 * Returns the index of the stop nearest to a smoothing, because an address may have a value between two stops.
 * @param {number} smoothing
 */
const findNearestStop = (smoothing) =>
  SMOOTHING.reduce(
    (bestIndex, stop, index) =>
      Math.abs(stop - smoothing) < Math.abs(SMOOTHING[bestIndex] - smoothing) ? index : bestIndex,
    0,
  );

/** A menu row with a checkbox. @param {{isOn: boolean, onChange: () => void, title?: string, children?: any}} props */
export const Switch = ({ isOn, onChange, title, children }) => html`<label class="menu-item" title=${title}>
  <input type="checkbox" checked=${isOn} onChange=${onChange} /> ${children}
</label>`;

/** @param {{view: CurveView, change: (changes: object) => void, onsets: boolean, children?: any}} props */
function Display({ view, change, onsets, children }) {
  const flip = (/** @type {'outliers' | 'values' | 'counts' | 'onsets'} */ name) => () =>
    change({ [name]: !view[name] });
  const flipLog = (/** @type {'x' | 'y'} */ name) => () => change({ log: toggleAxis(view.log, name) });
  return html`<div class="display-menu">
    ${children}
    <${Switch} isOn=${view.log.includes('y')} onChange=${flipLog('y')}>logarithmic y axes<//>
    <${Switch} isOn=${view.log.includes('x')} onChange=${flipLog('x')}>logarithmic x axes<//>
    <${Switch}
      isOn=${view.outliers}
      onChange=${flip('outliers')}
      title="Without, each chart says how many values lie outside"
    >
      outliers stretch the y axes
    <//>
    <${Switch} isOn=${view.values} onChange=${flip('values')} title="At the pinned position, else at the end (t)">
      values below each chart
    <//>
    <${Switch}
      isOn=${view.counts}
      onChange=${flip('counts')}
      title="Runs, seeds, points drawn of those recorded, smoothing, healthy range"
    >
      what each chart is made of
    <//>
    ${
      onsets &&
      html`<${Switch} isOn=${view.onsets} onChange=${flip('onsets')} title="Where the diagnosis sees the goal begin to fall">
        onsets
      <//>`
    }
  </div>`;
}

/**
 * Returns the keyboard shortcuts for the controls.
 * @param {CurveView} view @param {(changes: object) => void} change
 */
export const makeCurveKeys = (view, change) => ({
  s: { label: 'smoothing 0.6 / off', run: () => change({ smoothing: view.smoothing ? 0 : 0.6 }) },
  t: { label: 'values below each chart', run: () => change({ values: !view.values }) },
  l: { label: 'logarithmic y axis', run: () => change({ log: toggleAxis(view.log, 'y') }) },
});
