/** The panels of the page, which `draw.js` mounts and `crosshair.js` marks. */

/**
 * @typedef {ReturnType<typeof import('./figure.js').makeFigure>} Figure
 * @typedef {{onPoint?: (run: string | null, step: number, key: string) => void, onZoom?: (range: [number,
 *   number] | null) => void, onRange?: (range: [number, number] | null) => void, onNear?: (near: boolean) => void}}
 *   Handlers `onRange`: receives a range of y, in values, or null to reset it
 * @typedef {{element: Plot.Graph, metric: string, line: HTMLElement, shade: HTMLElement,
 *   curves: HTMLCanvasElement, lit: HTMLCanvasElement, label: HTMLElement, handlers: Handlers,
 *   figure: Figure | null, isNear: boolean, isDrawn: boolean, isPainted: boolean, plotContent: string,
 *   hovered: Plot.Point | null}} Mounted
 *   `element` is a graph of Plotly's once `drawn`; `isPainted`: its curves are on the canvas `curves`, and the hovered
 *   one is on `lit`; `plotted`: the figure that Plotly drew; `hovered`: the point with the label
 * @typedef {Mounted & {figure: Figure}} Drawn
 */

/** @type {Map<Element, Mounted>} */
export const panels = new Map();

/** @returns {Drawn[]} */
export const listDrawnPanels = () =>
  /** @type {Drawn[]} */ ([...panels.values()].filter(({ isDrawn, figure }) => isDrawn && figure));
