/** A scatter plot of two fields or metrics, with a point for each run. A dragged rectangle selects runs. */
import { html } from '../../dom.js';
import { NO_VALUE } from '../../lib/runs/axes.js';
import { runTitle } from '../../lib/runs/fields.js';
import { lookup } from '../../lib/lookup.js';
import { makeDragHandler } from '../shared/dragging.js';

const HEIGHT = 300;
const TOP = 12;
const LABELS = 110;
const RIGHT = 40;
const BELOW = 74;

/** @param {import('./parallel.js').PlotProps} props */
export function Scatter({ runs, axes, brushes, chosenIds, findLook, onBrush, width }) {
  const [xAxis, yAxis] = axes;
  if (!xAxis || !yAxis) return html`<p class="faint">Choose two axes above.</p>`;
  const length = Math.max(80, (width - LABELS - RIGHT) / (1 - NO_VALUE));
  const origin = LABELS - NO_VALUE * length;
  const toX = (/** @type {number} */ position) => origin + position * length;
  const toY = (/** @type {number} */ position) => TOP + (1 - position) * HEIGHT;
  const positionAtX = (/** @type {number} */ pixel) => (pixel - origin) / length;
  const positionAtY = (/** @type {number} */ pixel) => 1 - (pixel - TOP) / HEIGHT;
  const sortPair = (/** @type {number} */ a, /** @type {number} */ b) =>
    /** @type {[number, number]} */ (a < b ? [a, b] : [b, a]);
  const drag = makeDragHandler(
    ([x0, y0], [x1, y1]) =>
      onBrush({
        [xAxis.key]: sortPair(positionAtX(x0), positionAtX(x1)),
        [yAxis.key]: sortPair(positionAtY(y0), positionAtY(y1)),
      }),
    () => onBrush({ [xAxis.key]: null, [yAxis.key]: null }),
  );
  const [rangeX, rangeY] = [lookup(brushes, xAxis.key), lookup(brushes, yAxis.key)];
  const [startX, endX] = rangeX ?? [NO_VALUE, 1];
  const [low, high] = rangeY ?? [NO_VALUE, 1];
  return html`<svg
    class="relations-svg" width=${width} height=${TOP + HEIGHT + BELOW} role="group" aria-label="Scatter plot"
  >
    <g class="relations-axis">
      <line x1=${toX(NO_VALUE)} x2=${toX(1)} y1=${toY(NO_VALUE)} y2=${toY(NO_VALUE)} />
      <line x1=${toX(NO_VALUE)} x2=${toX(NO_VALUE)} y1=${toY(1)} y2=${toY(NO_VALUE)} />
      ${xAxis.ticks.map(
        ({ position, text }) => html`<text key=${text} x=${toX(position)} y=${toY(NO_VALUE) + 18} text-anchor="middle">
          <title>${text}</title>
          ${text.slice(0, 14)}
        </text>`,
      )}
      ${yAxis.ticks.map(
        ({ position, text }) => html`<text key=${text} x=${toX(NO_VALUE) - 6} y=${toY(position) + 4} text-anchor="end">
          <title>${text}</title>
          ${text.slice(0, 14)}
        </text>`,
      )}
      <text class="relations-title" x=${toX(0.5)} y=${toY(NO_VALUE) + 38} text-anchor="middle">${xAxis.title}</text>
      <text class="relations-title" x="4" y=${TOP + 2}>${yAxis.title}</text>
    </g>
    ${
      (rangeX || rangeY) &&
      html`<rect
        class="relations-brush"
        x=${toX(startX)}
        width=${Math.max(1, toX(endX) - toX(startX))}
        y=${toY(high)}
        height=${Math.max(1, toY(low) - toY(high))}
      />`
    }
    <rect
      class="relations-grip" x=${toX(NO_VALUE)} y=${toY(1) - 6} width=${length * (1 - NO_VALUE) + 6}
      height=${HEIGHT * (1 - NO_VALUE) + 12} onPointerDown=${drag}
    />
    ${runs.map(
      (run) => html`<circle
        key=${run.id}
        cx=${toX(xAxis.toPosition(run))}
        cy=${toY(yAxis.toPosition(run))}
        r="5"
        fill=${findLook(run)?.colour ?? 'currentColor'}
        class=${chosenIds.has(run.id) ? 'relation-point' : 'relation-point is-left-out'}
      >
        <title>${[runTitle(run), ...axes.map((axis) => `${axis.title}: ${axis.text(run)}`)].join('\n')}</title>
      </circle>`,
    )}
  </svg>`;
}
