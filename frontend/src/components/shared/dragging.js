/** Dragging over a drawing, in the drawing's own pixels. */

/** @typedef {[number, number]} Point */

const MAX_CLICK_MOVE_PX = 3;

/**
 * Returns a handler of `pointerdown` that reports each position until release. A click without movement clears.
 * @param {(from: Point, to: Point) => void} onDrag @param {() => void} onClear
 * @returns {(event: PointerEvent) => void}
 */
export const makeDragHandler = (onDrag, onClear) => (downEvent) => {
  const target = /** @type {SVGElement} */ (downEvent.currentTarget);
  const svg = target.ownerSVGElement;
  if (downEvent.button !== 0 || !svg) return;
  const readPoint = (/** @type {PointerEvent} */ event) => {
    const { left, top } = svg.getBoundingClientRect();
    return /** @type {Point} */ ([event.clientX - left, event.clientY - top]);
  };
  const from = readPoint(downEvent);
  const move = (/** @type {PointerEvent} */ event) => onDrag(from, readPoint(event));
  const end = (/** @type {PointerEvent} */ event) => {
    target.removeEventListener('pointermove', move);
    if (Math.hypot(event.clientX - downEvent.clientX, event.clientY - downEvent.clientY) < MAX_CLICK_MOVE_PX) onClear();
  };
  target.setPointerCapture(downEvent.pointerId);
  target.addEventListener('pointermove', move);
  target.addEventListener('pointerup', end, { once: true });
};
