/** A scatter plot of two fields or metrics, with a point for each run. A dragged rectangle selects runs. */
import { html } from '../../dom.js';
import { NO_VALUE } from '../../lib/runs/axes.js';
import { runTitle } from '../../lib/runs/fields.js';
import { lookup } from '../../lib/lookup.js';
import { dragged } from '../shared/dragging.js';

const HEIGHT = 300;
const TOP = 12;
const LABELS = 110;
const RIGHT = 40;
const BELOW = 74;

/** @param {import('./parallel.js').PlotProps} props */
export function Scatter({ runs, axes, brushes, chosen, lookOf, onBrush, width }) {
  const [across, up] = axes;
  if (!across || !up) return html`<p class="faint">Choose two axes above.</p>`;
  const length = Math.max(80, (width - LABELS - RIGHT) / (1 - NO_VALUE));
  const origin = LABELS - NO_VALUE * length;
  const x = (/** @type {number} */ position) => origin + position * length;
  const y = (/** @type {number} */ position) => TOP + (1 - position) * HEIGHT;
  const positionAtX = (/** @type {number} */ pixel) => (pixel - origin) / length;
  const positionAtY = (/** @type {number} */ pixel) => 1 - (pixel - TOP) / HEIGHT;
  const sorted = (/** @type {number} */ a, /** @type {number} */ b) =>
    /** @type {[number, number]} */ (a < b ? [a, b] : [b, a]);
  const drag = dragged(
    ([x0, y0], [x1, y1]) =>
      onBrush({
        [across.key]: sorted(positionAtX(x0), positionAtX(x1)),
        [up.key]: sorted(positionAtY(y0), positionAtY(y1)),
      }),
    () => onBrush({ [across.key]: null, [up.key]: null }),
  );
  const [rangeX, rangeY] = [lookup(brushes, across.key), lookup(brushes, up.key)];
  const [left, right] = rangeX ?? [NO_VALUE, 1];
  const [low, high] = rangeY ?? [NO_VALUE, 1];
  return html`<svg
    class="relations-svg" width=${width} height=${TOP + HEIGHT + BELOW} role="group" aria-label="Scatter plot"
  >
    <g class="relations-axis">
      <line x1=${x(NO_VALUE)} x2=${x(1)} y1=${y(NO_VALUE)} y2=${y(NO_VALUE)} />
      <line x1=${x(NO_VALUE)} x2=${x(NO_VALUE)} y1=${y(1)} y2=${y(NO_VALUE)} />
      ${across.ticks.map(
        ({ at, text }) => html`<text key=${text} x=${x(at)} y=${y(NO_VALUE) + 18} text-anchor="middle">
          <title>${text}</title>
          ${text.slice(0, 14)}
        </text>`,
      )}
      ${up.ticks.map(
        ({ at, text }) => html`<text key=${text} x=${x(NO_VALUE) - 6} y=${y(at) + 4} text-anchor="end">
          <title>${text}</title>
          ${text.slice(0, 14)}
        </text>`,
      )}
      <text class="relations-title" x=${x(0.5)} y=${y(NO_VALUE) + 38} text-anchor="middle">${across.title}</text>
      <text class="relations-title" x="4" y=${TOP + 2}>${up.title}</text>
    </g>
    ${
      (rangeX || rangeY) &&
      html`<rect
        class="relations-brush"
        x=${x(left)}
        width=${Math.max(1, x(right) - x(left))}
        y=${y(high)}
        height=${Math.max(1, y(low) - y(high))}
      />`
    }
    <rect
      class="relations-grip" x=${x(NO_VALUE)} y=${y(1) - 6} width=${length * (1 - NO_VALUE) + 6}
      height=${HEIGHT * (1 - NO_VALUE) + 12} onPointerDown=${drag}
    />
    ${runs.map(
      (run) => html`<circle
        key=${run.id}
        cx=${x(across.positionOf(run))}
        cy=${y(up.positionOf(run))}
        r="5"
        fill=${lookOf(run)?.colour ?? 'currentColor'}
        class=${chosen.has(run.id) ? 'relation-point' : 'relation-point is-left-out'}
      >
        <title>${[runTitle(run), ...axes.map((axis) => `${axis.title}: ${axis.text(run)}`)].join('\n')}</title>
      </circle>`,
    )}
  </svg>`;
}
