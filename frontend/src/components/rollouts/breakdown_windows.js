/** A metric's curve with the two compared windows of steps. Dragging over the curve moves the nearer window. */
import { html, useRef, useState } from '../../dom.js';
import { makeCurve } from '../../lib/curve.js';
import { formatValue } from '../../lib/text/format.js';
import { redrawWindow } from '../../lib/breakdown.js';
import { stepsText } from '../../lib/runs/verdicts.js';
import { makeDragHandler } from '../shared/dragging.js';

const WIDTH = 1000;
const HEIGHT = 120;

/** @typedef {import('../../lib/breakdown.js').Window} Window */
/** @typedef {{before: Window, after: Window}} Pair */

/**
 * @param {{series: import('../../charts/figure.js').Series, before: Window, after: Window, onset: Api.Steps | null |
 *   undefined, onChange: (next: Pair) => void}} props
 */
export function Windows({ series, before, after, onset, onChange }) {
  const [draft, setDraft] = useState(/** @type {Pair | null} */ (null));
  const latestPair = useRef(/** @type {Pair | null} */ (null));
  const shownPair = draft ?? { before, after };
  const steps = series.steps;
  const [from, to] = [Math.min(steps[0], before.first), Math.max(steps[steps.length - 1], after.last, steps[0] + 1)];
  const { low, high, x, path } = makeCurve(series, { from, to, width: WIDTH, height: HEIGHT });
  const toStep = (/** @type {number} */ pixel, /** @type {SVGElement | null} */ svg) =>
    Math.max(from, Math.min(to, from + (pixel / (svg?.getBoundingClientRect().width || 1)) * (to - from)));
  const svg = useRef(/** @type {SVGElement | null} */ (null));
  const drag = makeDragHandler(
    ([start], [end]) => {
      latestPair.current = redrawWindow({ before, after }, toStep(start, svg.current), toStep(end, svg.current));
      setDraft(latestPair.current);
    },
    () => {
      latestPair.current = null;
      setDraft(null);
    },
  );
  const release = () => {
    if (latestPair.current) onChange(latestPair.current);
    latestPair.current = null;
    setDraft(null);
  };
  const halfStep = steps.length > 1 ? (steps[steps.length - 1] - steps[0]) / (steps.length - 1) / 2 : 0.5;
  const band = (/** @type {Window} */ stepWindow, /** @type {string} */ name) => html`<rect
    class=${`breakdown-window is-${name}`}
    x=${x(stepWindow.first - halfStep)}
    width=${Math.max(3, x(stepWindow.last + halfStep) - x(stepWindow.first - halfStep))}
    y="-8"
    height=${HEIGHT + 16}
  >
    <title>${name}: steps ${stepWindow.first} to ${stepWindow.last}</title>
  </rect>`;
  return html`<div class="breakdown-windows">
    <svg
      ref=${svg}
      viewBox=${`0 -8 ${WIDTH} ${HEIGHT + 16}`}
      preserveAspectRatio="none"
      role="img"
      aria-label=${`Curve from ${formatValue(low)} to ${formatValue(high)}`}
    >
      ${band(shownPair.before, 'before')} ${band(shownPair.after, 'after')}
      ${
        onset &&
        html`<rect
          class="breakdown-onset"
          x=${x(onset.healthy)}
          width=${Math.max(3, x(onset.sick) - x(onset.healthy))}
          y="-8"
          height=${HEIGHT + 16}
        />`
      }
      <path class="breakdown-curve" d=${path} />
      <rect
        class="breakdown-grip"
        x="0"
        y="-8"
        width=${WIDTH}
        height=${HEIGHT + 16}
        onPointerDown=${drag}
        onPointerUp=${() => setTimeout(release)}
      />
    </svg>
    <p class="faint">
      Drag over the curve to move the nearer window.${' '}
      <span class="breakdown-legend">
        <span><span class="breakdown-key is-before"></span> before</span>
        <span><span class="breakdown-key is-after"></span> after</span>
        ${onset && html`<span><span class="breakdown-key is-onset"></span> onset, ${stepsText(onset)}</span>`}
      </span>
    </p>
  </div>`;
}
