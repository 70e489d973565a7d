/** Custom order and sizes of panels, by pointer and by keys. Both are stored in the address. */
import { html, useRef } from '../../dom.js';
import { MAX_SIZE, findSize, changeTuning } from './tuning.js';
import { lookup } from '../../lib/lookup.js';

/**
 * Returns the metrics in the chosen order. Metrics that were never moved keep their positions.
 * @param {string[]} metrics @param {string[]} order
 */
export function orderMetrics(metrics, order) {
  const rank = new Map(order.map((metric, i) => [metric, i]));
  const movedMetrics = metrics.filter((metric) => rank.has(metric));
  const sortedMetrics = [...movedMetrics].sort((a, b) => Number(rank.get(a)) - Number(rank.get(b)));
  return metrics.map((metric) => (rank.has(metric) ? String(sortedMetrics.shift()) : metric));
}

/**
 * Returns the order of a row of panels after one panel was moved.
 * @param {string[]} metrics as shown @param {string} metric @param {number} newIndex its new index
 */
export function moveMetric(metrics, metric, newIndex) {
  const remainingMetrics = metrics.filter((name) => name !== metric);
  const index = Math.max(0, Math.min(remainingMetrics.length, newIndex));
  return [...remainingMetrics.slice(0, index), metric, ...remainingMetrics.slice(index)];
}

/**
 * Returns the order of all panels after the order of one row has changed.
 * @param {string[]} order @param {string[]} row
 */
export const mergeOrder = (order, row) => [...order.filter((metric) => !row.includes(metric)), ...row];

const DRAG_TYPE = 'application/x-grpolab-panel';

/**
 * The handle of a panel. Dragging it to another panel moves its panel there; arrow keys move the panel, and with Shift
 * they resize it.
 * @param {{metric: string, tune?: import('./tuning.js').Tunings, onTune: (changes: object) => void,
 *   onMove: (by: number) => void}} props
 */
export function Handle({ metric, tune, onTune, onMove }) {
  const [wide, tall] = findSize(tune, metric);
  const resize = (/** @type {number} */ columns, /** @type {number} */ rows) =>
    onTune({ tune: resizePanel(tune, metric, wide + columns, tall + rows) });
  const press = (/** @type {KeyboardEvent} */ event) => {
    const step = lookup(ARROWS, event.key);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const [columns, rows] = step;
    if (event.shiftKey) resize(columns, rows);
    else onMove(columns + rows);
  };
  return html`<button
    class="button-icon panel-handle"
    draggable="true"
    title="Drag to move; arrow keys move, with Shift they resize"
    aria-label=${`Move or resize ${metric}`}
    onKeyDown=${press}
    onDragStart=${(/** @type {DragEvent} */ event) => {
      event.dataTransfer?.setData(DRAG_TYPE, metric);
    }}
  >
    ⠿
  </button>`;
}

/** @type {Record<string, [number, number]>} across and down */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {import('./tuning.js').Tunings | undefined} tune @param {string} metric
 * @param {number} wide @param {number} tall
 */
function resizePanel(tune, metric, wide, tall) {
  const clampSize = (/** @type {number} */ size) => Math.max(1, Math.min(MAX_SIZE, Math.round(size)));
  const size = /** @type {[number, number]} */ ([clampSize(wide), clampSize(tall)]);
  return changeTuning(tune, metric, { size: size.join() === '1,1' ? undefined : size });
}

/** Returns the handlers of an element on which a panel can be dropped. @param {(metric: string) => void} onDrop */
export const dropHandlers = (onDrop) => ({
  onDragOver: (/** @type {DragEvent} */ event) => {
    if (event.dataTransfer?.types.includes(DRAG_TYPE)) event.preventDefault();
  },
  onDrop: (/** @type {DragEvent} */ event) => {
    const metric = event.dataTransfer?.getData(DRAG_TYPE);
    if (!metric) return;
    event.preventDefault();
    onDrop(metric);
  },
});

/**
 * The corner that is dragged to resize a panel by complete rows and columns.
 * @param {{metric: string, tune?: import('./tuning.js').Tunings, onTune: (changes: object) => void}} props
 */
export function Corner({ metric, tune, onTune }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const begin = (/** @type {PointerEvent} */ downEvent) => {
    const corner = element.current;
    const panel = corner?.closest('.panel');
    if (!corner || !panel || downEvent.button !== 0) return;
    const [wide, tall] = findSize(tune, metric);
    const { width, height } = panel.getBoundingClientRect();
    const move = (/** @type {PointerEvent} */ event) => {
      const columns = (event.clientX - downEvent.clientX) / (width / wide);
      const rows = (event.clientY - downEvent.clientY) / (height / tall);
      onTune({ tune: resizePanel(tune, metric, wide + columns, tall + rows) });
    };
    corner.setPointerCapture(downEvent.pointerId);
    corner.addEventListener('pointermove', move);
    corner.addEventListener('lostpointercapture', () => corner.removeEventListener('pointermove', move), {
      once: true,
    });
  };
  return html`<span
    class="panel-corner" ref=${element} aria-hidden="true" title="Drag to resize" onPointerDown=${begin}
  ></span>`;
}
