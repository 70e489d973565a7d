/** Dragging over a drawing, in the drawing's own pixels. */

/** @typedef {[number, number]} Point */

const MAX_CLICK_MOVE_PX = 3;

/**
 * Returns a handler of `pointerdown` that reports each position until release. A click without movement clears.
 * @param {(from: Point, to: Point) => void} onDrag @param {() => void} onClear
 * @returns {(event: PointerEvent) => void}
 */
export const dragged = (onDrag, onClear) => (down) => {
  const target = /** @type {SVGElement} */ (down.currentTarget);
  const svg = target.ownerSVGElement;
  if (down.button !== 0 || !svg) return;
  const pointOf = (/** @type {PointerEvent} */ event) => {
    const { left, top } = svg.getBoundingClientRect();
    return /** @type {Point} */ ([event.clientX - left, event.clientY - top]);
  };
  const from = pointOf(down);
  const move = (/** @type {PointerEvent} */ event) => onDrag(from, pointOf(event));
  const end = (/** @type {PointerEvent} */ event) => {
    target.removeEventListener('pointermove', move);
    if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < MAX_CLICK_MOVE_PX) onClear();
  };
  target.setPointerCapture(down.pointerId);
  target.addEventListener('pointermove', move);
  target.addEventListener('pointerup', end, { once: true });
};
