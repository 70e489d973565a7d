/** A parallel coordinates plot, with an upright axis for each field or metric and a line for each run. */
import { html } from '../../dom.js';
import { NO_VALUE } from '../../lib/runs/axes.js';
import { runTitle } from '../../lib/runs/fields.js';
import { lookup } from '../../lib/lookup.js';
import { makeDragHandler } from '../shared/dragging.js';

const HEIGHT = 260;
const TOP = 44;
const SIDE = 70;
const BOTTOM = 26;
const STEP = 0.05;
const LETTER_WIDTH = 6.5;
/** Minimum distance between two axes in pixels, so that their labels do not overlap. */
const MIN_GAP = 110;

/** @typedef {import('../../lib/runs/axes.js').Axis} Axis */

/**
 * @typedef {{runs: Api.RunItem[], axes: Axis[], brushes: import('../../lib/runs/axes.js').Brushes, chosenIds:
 *   Set<string>, findLook: (run: Api.RunItem) => import('../../lib/colours.js').Look | undefined,
 *   onBrush: (changes: Record<string, [number, number] | null>) => void, width: number}} PlotProps
 * @param {PlotProps} props
 */
export function Parallel({ runs, axes, brushes, chosenIds, findLook, onBrush, width: availableWidth }) {
  if (!axes.length) return html`<p class="faint">Choose axes above.</p>`;
  const width = Math.max(availableWidth, 2 * SIDE + (axes.length - 1) * MIN_GAP);
  const gap = axes.length > 1 ? (width - 2 * SIDE) / (axes.length - 1) : 0;
  const toX = (/** @type {number} */ i) => SIDE + i * gap;
  const toY = (/** @type {number} */ position) => TOP + (1 - position) * HEIGHT;
  const path = (/** @type {Api.RunItem} */ run) =>
    axes.map(({ toPosition }, i) => `${i ? 'L' : 'M'}${toX(i).toFixed(1)} ${toY(toPosition(run)).toFixed(1)}`).join('');
  const sortedRuns = [...runs].sort((a, b) => Number(chosenIds.has(a.id)) - Number(chosenIds.has(b.id)));
  const height = TOP + HEIGHT + BOTTOM + 16;
  return html`<div class=${width > availableWidth ? 'relations-scroll' : ''}>
    <svg
    class="relations-svg" width=${width} height=${height} role="group" aria-label="Parallel coordinates"
  >
    <g>
      ${sortedRuns.map(
        (run) => html`<path
          key=${run.id}
          d=${path(run)}
          stroke=${findLook(run)?.colour ?? 'currentColor'}
          class=${chosenIds.has(run.id) ? 'relation' : 'relation is-left-out'}
        >
          <title>${[runTitle(run), ...axes.map((axis) => `${axis.title}: ${axis.text(run)}`)].join('\n')}</title>
        </path>`,
      )}
    </g>
    ${axes.map(
      (axis, i) => html`<${UprightAxis}
        key=${axis.key}
        axis=${axis}
        x=${toX(i)}
        y=${toY}
        letters=${Math.max(6, Math.floor((gap || width) / LETTER_WIDTH) - 2)}
        range=${lookup(brushes, axis.key)}
        onBrush=${(/** @type {[number, number] | null} */ range) => onBrush({ [axis.key]: range })}
      />`,
    )}
  </svg>
  </div>`;
}

const truncateText = (/** @type {string} */ text, /** @type {number} */ letters) =>
  text.length > letters ? `…${text.slice(1 - letters)}` : text;

/**
 * @param {{axis: Axis, x: number, y: (place: number) => number, letters: number, range?: [number, number],
 *   onBrush: (range: [number, number] | null) => void}} props `letters`: maximum length of a title
 */
function UprightAxis({ axis, x, y, letters, range, onBrush }) {
  const toPosition = (/** @type {number} */ pixel) => 1 - (pixel - TOP) / HEIGHT;
  const press = (/** @type {KeyboardEvent} */ event) => {
    const [low, high] = range ?? [NO_VALUE, 1];
    if (event.key === 'Escape') onBrush(null);
    else if (event.key === 'ArrowUp') onBrush([Math.min(high, low + STEP), high]);
    else if (event.key === 'ArrowDown') onBrush([low, Math.max(low, high - STEP)]);
    else return;
    event.preventDefault();
  };
  const drag = makeDragHandler(
    ([, from], [, to]) => {
      const [low, high] = [toPosition(Math.max(from, to)), toPosition(Math.min(from, to))];
      onBrush([low, high]);
    },
    () => onBrush(null),
  );
  return html`<g
    class="relations-axis"
    tabindex="0"
    role="group"
    aria-label=${`${axis.title}: up and down arrows narrow the selection, Escape clears it`}
    onKeyDown=${press}
  >
    <text x=${x} y=${16} text-anchor="middle" class="relations-title">
      <title>${axis.title}</title>
      ${truncateText(axis.title, letters)}
    </text>
    <line x1=${x} x2=${x} y1=${y(1)} y2=${y(NO_VALUE)} />
    ${axis.ticks.map(
      ({ position, text }) => html`<text key=${text} x=${x + 6} y=${y(position) + 4}>
        <title>${text}</title>
        ${truncateText(text, 14)}
      </text>`,
    )}
    ${
      range &&
      html`<rect
        class="relations-brush" x=${x - 7} width="14" y=${y(range[1])}
        height=${Math.max(2, y(range[0]) - y(range[1]))}
      />`
    }
    <rect
      class="relations-grip" x=${x - 14} width="28" y=${TOP - 12} height=${HEIGHT + BOTTOM + 24} onPointerDown=${drag}
    />
  </g>`;
}
