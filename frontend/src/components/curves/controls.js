/** How curves are drawn: x axis, smoothing, log axes. The same controls and parameters on every page with panels. */
import { html } from '../../dom.js';
import { flag, list, number, range, text } from '../../lib/url.js';
import { isMetricAxis } from '../../lib/series.js';
import { tunings } from './tuning.js';
import { Segments, Select } from '../shared/marks.js';

/** A kind of x axis or a metric. @returns {import('../../lib/url.js').Codec<string>} */
function axis() {
  return { initial: 'step', read: (t) => t || undefined, write: (v) => v };
}

/** View parameters of pages with curves. */
export const CURVE_SPEC = {
  x: axis(),
  smoothing: number(0, { min: 0, max: 0.999 }),
  log: list([]),
  zoom: range(),
  onsets: flag(true),
  at: number(/** @type {number | null} */ (null)),
  values: flag(),
  baseline: text(),
  outliers: flag(true),
  tune: tunings(),
  order: list([]),
};

const X = [
  { value: 'step', label: 'step' },
  { value: 'wall', label: 'time', title: 'Training time since the run first started' },
  { value: 'tokens', label: 'tokens', title: 'Generated tokens' },
  { value: 'samples', label: 'samples', title: 'Sampled completions, discarded groups included' },
  { value: 'flops', label: 'FLOPs', title: 'Floating-point operations of sampling and learning' },
];
export const SMOOTHING = [0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99];

/** @param {string[]} log @param {'x'|'y'} axis */
const toggled = (log, axis) => (log.includes(axis) ? log.filter((a) => a !== axis) : [...log, axis].sort());

/** @typedef {import('../../lib/url.js').Values<typeof CURVE_SPEC>} CurveView */

/**
 * @param {{view: CurveView, change: (changes: object) => void, available: string[], onsets?: boolean}} props
 *   `available`: metrics, each of which can be the x axis; `onsets`: whether there are any
 */
export function CurveControls({ view, change, available, onsets = false }) {
  const onAxis = (/** @type {string} */ x) => change({ x, zoom: null, at: null });
  const steps = SMOOTHING.includes(view.smoothing) ? SMOOTHING : [...SMOOTHING, view.smoothing].sort();
  return html`
    <${Segments} label="x axis" value=${view.x} options=${X} onChange=${onAxis} />
    <span class="axis-metric">
      <${Select}
        label="over"
        value=${isMetricAxis(view.x) ? view.x : ''}
        options=${[{ value: '', label: 'a metric' }, ...new Set([...available, ...(isMetricAxis(view.x) ? [view.x] : [])])]}
        onChange=${(metric) => onAxis(metric || 'step')}
      />
    </span>
    <span class=${view.smoothing > 0 ? 'is-smoothed' : undefined}>
      <${Select}
        label="smoothing"
        value=${String(view.smoothing)}
        options=${steps.map((s) => ({ value: String(s), label: s ? String(s) : 'off' }))}
        onChange=${(s) => change({ smoothing: Number(s) })}
      />
    </span>
    <div class="segments" role="group" aria-label="Logarithmic axes">
      <button aria-pressed=${view.log.includes('y')} onClick=${() => change({ log: toggled(view.log, 'y') })}>
        log y
      </button>
      <button aria-pressed=${view.log.includes('x')} onClick=${() => change({ log: toggled(view.log, 'x') })}>
        log x
      </button>
    </div>
    <button
      class="button-quiet"
      aria-pressed=${view.outliers}
      title="Let outliers stretch the y axes; without them each chart says how many points lie outside"
      onClick=${() => change({ outliers: !view.outliers })}
    >
      outliers
    </button>
    <button
      class="button-quiet"
      aria-pressed=${view.values}
      title="The values of all lines below each chart: at the cursor, else the last ones (t)"
      onClick=${() => change({ values: !view.values })}
    >
      values
    </button>
    ${
      onsets &&
      html`<button
        class="button-quiet"
        aria-pressed=${view.onsets}
        title="Where the diagnosis sees the goal begin to fall"
        onClick=${() => change({ onsets: !view.onsets })}
      >
        onsets
      </button>`
    }
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
  `;
}

/** Keys that go with the controls. @param {CurveView} view @param {(changes: object) => void} change */
export const curveKeys = (view, change) => ({
  s: { label: 'smoothing 0.6 / off', run: () => change({ smoothing: view.smoothing ? 0 : 0.6 }) },
  t: { label: 'values below each chart', run: () => change({ values: !view.values }) },
  l: { label: 'logarithmic y axis', run: () => change({ log: toggled(view.log, 'y') }) },
});
