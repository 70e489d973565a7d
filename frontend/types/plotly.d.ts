/** The part of Plotly that `src/charts/draw.js` uses. The library itself comes from the `plotly` package of Python. */
declare namespace Plot {
  type Trace = Record<string, any>;
  type Layout = Record<string, any>;

  interface Axis {
    autorange: boolean;
    readonly range: number[];
    readonly type: string;
    d2p(value: number): number;
    p2d(pixel: number): number;
    readonly _length: number;
    readonly _offset: number;
  }

  interface Point {
    data: { meta: { key: string; run: string | null; role: string }; x?: number[]; yaxis?: string; name?: string };
    customdata: number;
    x: number;
    y: number;
    text?: string;
  }

  /** An element that Plotly has drawn into. */
  interface Graph extends HTMLElement {
    data: Trace[];
    layout: Layout;
    readonly _fullLayout: { xaxis: Axis; yaxis: Axis };
    on(
      event: 'plotly_afterplot' | 'plotly_relayouting' | 'plotly_unhover' | 'plotly_doubleclick',
      listener: () => void,
    ): void;
    on(event: 'plotly_hover', listener: (event: { points?: Point[]; event?: MouseEvent }) => void): void;
    on(event: 'plotly_relayout', listener: (change: Record<string, any>) => void): void;
  }

  interface Library {
    react(element: HTMLElement, data: Trace[], layout: Layout, config: object): Promise<Graph>;
    relayout(element: HTMLElement, change: Layout): Promise<Graph>;
    purge(element: HTMLElement): void;
    toImage(figure: { data: Trace[]; layout: Layout; config: object }, options: object): Promise<string>;
    Fx: { unhover(element: HTMLElement): void };
  }
}

interface Window {
  Plotly: Plot.Library;
  jspdf: { jsPDF: new (options: object) => { output(type: 'blob'): Blob } };
  svg2pdf: { svg2pdf(element: Element, file: object, options: object): Promise<unknown> };
}

interface IntersectionObserverInit {
  scrollMargin?: string;
}
