/** Exports charts as a figure for a paper: the choice of size and font, a preview, and the files. */
import { html, signal, useEffect, useRef, useState } from '../../dom.js';
import { say, sayError } from '../../app/state.js';
import { downloadBlob, fileName } from '../../app/actions.js';
import { readShownRange } from '../../charts/draw.js';
import { makeFigure, seriesKey } from '../../charts/figure.js';
import { FONTS, ONE_COLUMN, PAPER_THEME, WIDTHS, isDrawable } from '../../charts/paper.js';
import { makeFile, drawPage, makeSvgBlob } from '../../charts/picture.js';
import { curvesAsCsv } from '../../lib/reading.js';
import { plural, listSome } from '../../lib/text/format.js';
import { Segments, Select } from '../shared/marks.js';
import { Dialog } from '../shared/overlay.js';
import { loadPanel } from './loaded.js';

/**
 * @typedef {import('../../charts/paper.js').Paper} Paper
 * @typedef {Awaited<ReturnType<typeof loadPanel>>} Loaded
 * @typedef {{view: import('./panel.js').PanelView, runs: string[], looks: import('./lines.js').Looks,
 *   names: Map<string, string>, onsets?: import('../../lib/runs/verdicts.js').Onset[]}} Page
 */

/** Metric for which a figure is requested, or '' for all shown metrics. */
export const askedFigure = signal(/** @type {string | null} */ (null));

const MAX_PANELS = 24;
const POINTS = 1000;
const SETTLED_MS = 250;
/** Widths of common columns, in millimetres. */
const COLUMNS = [
  { value: '84', label: 'one column, 84 mm' },
  { value: '120', label: 'one and a half, 120 mm' },
  { value: '174', label: 'two columns, 174 mm' },
];
const FAMILIES = [
  { value: 'Helvetica', label: 'sans serif (Helvetica)' },
  { value: 'Times', label: 'serif (Times)' },
];

/** The dialog, shown while a figure is requested. @param {Page & {metrics: string[]}} props */
export function FigureOnDemand(props) {
  const metric = askedFigure.value;
  useEffect(
    () => () => {
      askedFigure.value = null;
    },
    [],
  );
  return metric !== null && html`<${FigureDialog} ...${props} metric=${metric} />`;
}

/** @param {Page & {metrics: string[], metric: string}} props */
function FigureDialog({ metrics, metric, ...page }) {
  const [chosenMetrics, setChosenMetrics] = useState(metric ? [metric] : metrics.slice(0, MAX_PANELS));
  const [paper, setPaper] = useState(/** @type {Paper} */ ({ ...ONE_COLUMN, ...chooseSize(chosenMetrics.length) }));
  const changePaper = (/** @type {Partial<Paper>} */ changes) => setPaper({ ...paper, ...changes });
  const choose = (/** @type {string[]} */ next) => {
    setChosenMetrics(next);
    if (next.length > 1 !== chosenMetrics.length > 1) changePaper(chooseSize(next.length));
  };
  const hasOnsets = page.view.onsets !== false && page.onsets !== undefined && page.onsets.length > 0;
  const { drawn, error } = useDrawn(chosenMetrics, paper, page);
  const [isSaving, setSaving] = useState(false);
  const close = () => {
    askedFigure.value = null;
  };
  const name = chosenMetrics.length === 1 ? fileName(chosenMetrics[0]) : 'figure';
  const save = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (!drawn) return;
    setSaving(true);
    try {
      downloadBlob(await makeFile(drawn.page, paper.format), `${name}.${paper.format}`);
      say(`${name}.${paper.format} saved`);
    } catch (failure) {
      sayError(failure);
    }
    setSaving(false);
  };
  const saveData = () =>
    drawn && downloadBlob(new Blob([curvesAsCsv(drawn.panels, page.view.x)], { type: 'text/csv' }), `${name}.csv`);
  return html`<${Dialog} title="Figure" wide onClose=${close}>
    <form class="figure-form" onSubmit=${save}>
      <div class="figure-choices">
        <${Segments}
          label="Format"
          value=${paper.format}
          options=${['pdf', 'svg', 'png'].map((value) => ({ value, label: value.toUpperCase() }))}
          onChange=${(/** @type {Paper['format']} */ format) => changePaper({ format })}
        />
        <${Size} paper=${paper} onChange=${changePaper} />
        ${
          chosenMetrics.length > 1 &&
          html`<${Select}
            label="charts in a row"
            value=${String(paper.columns)}
            options=${['1', '2', '3', '4']}
            onChange=${(/** @type {string} */ columns) => changePaper({ columns: Number(columns) })}
          />`
        }
        <${Select}
          label="font"
          value=${paper.family}
          options=${FAMILIES}
          onChange=${(/** @type {string} */ family) => changePaper({ family })}
        />
        <${Select}
          label="ground"
          value=${paper.ground}
          options=${['white', 'transparent']}
          onChange=${(/** @type {Paper['ground']} */ ground) => changePaper({ ground })}
        />
        <label class="check">
          <input type="checkbox" checked=${paper.legend} onChange=${() => changePaper({ legend: !paper.legend })} /> legend
        </label>
        ${
          hasOnsets &&
          html`<label class="check">
            <input type="checkbox" checked=${paper.onsets} onChange=${() => changePaper({ onsets: !paper.onsets })} /> onsets
          </label>`
        }
      </div>
      ${metrics.length > 1 && html`<${Charts} metrics=${metrics} chosenMetrics=${chosenMetrics} onChoose=${choose} />`}
      <${Preview} page=${drawn?.page} error=${error} />
      <p class="faint">
        ${drawn && makeCaption(drawn.panels)}
        ${
          paper.format === 'pdf' &&
          ` The PDF names the standard font ${paper.family}, which every reader has, and does not embed it.`
        }
      </p>
      <footer>
        <button type="button" class="button" disabled=${!drawn} onClick=${saveData}>Data (CSV)</button>
        <span class="spacer"></span>
        <button type="button" class="button" onClick=${close}>Close</button>
        <button class="button button-primary" disabled=${!drawn || isSaving} autofocus>
          ${isSaving ? 'Saving' : `Save ${paper.format.toUpperCase()}`}
        </button>
      </footer>
    </form>
  <//>`;
}

/**
 * Returns the width and the number of charts per row for a number of charts.
 * @param {number} count @returns {Partial<Paper>}
 */
const chooseSize = (count) => ({ columns: count > 1 ? 3 : 1, width: count > 1 ? 174 : 84, unit: 'mm' });

/**
 * The choice of the figure's charts from those on the page. At least one is always chosen.
 * @param {{metrics: string[], chosenMetrics: string[], onChoose: (metrics: string[]) => void}} props
 */
function Charts({ metrics, chosenMetrics, onChoose }) {
  const flip = (/** @type {string} */ metric) =>
    onChoose(metrics.filter((name) => (name === metric) !== chosenMetrics.includes(name)));
  return html`<details class="figure-charts">
    <summary>${`${chosenMetrics.length} of ${plural(metrics.length, 'chart')}: ${listSome(chosenMetrics, 3)}`}</summary>
    <div>
      ${metrics.map((metric) => {
        const isChosen = chosenMetrics.includes(metric);
        return html`<div class="figure-chart" key=${metric}>
          <label class="check">
            <input
              type="checkbox"
              checked=${isChosen}
              disabled=${isChosen ? chosenMetrics.length === 1 : chosenMetrics.length >= MAX_PANELS}
              onChange=${() => flip(metric)}
            />
            ${metric}
          </label>
          <button
            type="button"
            class="button button-small button-quiet"
            aria-label=${`Only ${metric}`}
            onClick=${() => onChoose([metric])}
          >
            only
          </button>
        </div>`;
      })}
    </div>
  </details>`;
}

/** Returns a sentence for the caption about the lines. @param {Loaded[]} panels */
function makeCaption(panels) {
  const texts = panels.map(({ notes }) => notes.map(({ text }) => text));
  const sharedTexts = texts[0].filter((text) => texts.every((other) => other.includes(text)));
  return sharedTexts.length ? `For the caption: ${sharedTexts.join(', ')}.` : '';
}

/** @param {{paper: Paper, onChange: (changes: Partial<Paper>) => void}} props */
function Size({ paper, onChange }) {
  const usual = paper.unit === 'mm' && COLUMNS.some(({ value }) => value === String(paper.width));
  const limits = WIDTHS[paper.unit];
  return html`
    <${Select}
      label="width"
      value=${usual ? String(paper.width) : ''}
      options=${[...COLUMNS, { value: '', label: 'other' }]}
      onChange=${(/** @type {string} */ width) => (width ? onChange({ width: Number(width), unit: 'mm' }) : onChange({ width: 100 }))}
    />
    <span class="figure-width">
      <input
        class="field"
        type="number"
        aria-label="Width"
        step="any"
        min=${limits.min}
        max=${limits.max}
        value=${paper.width}
        onInput=${(/** @type {any} */ event) => onChange({ width: event.target.valueAsNumber })}
      />
      <${Segments}
        label="Unit"
        value=${paper.unit}
        options=${[{ value: 'mm', label: 'mm' }, { value: 'in', label: 'in' }]}
        onChange=${(/** @type {'mm' | 'in'} */ unit) =>
          unit !== paper.unit &&
          onChange({ unit, width: Number((unit === 'in' ? paper.width / 25.4 : paper.width * 25.4).toFixed(2)) })}
      />
    </span>
    <label class="select">
      <span>font size</span>
      <input
        class="field"
        type="number"
        step="any"
        min=${FONTS.min}
        max=${FONTS.max}
        value=${paper.font}
        onInput=${(/** @type {any} */ event) => onChange({ font: event.target.valueAsNumber })}
      />
      <span>pt</span>
    </label>
  `;
}

/**
 * Returns the page of a figure, which is redrawn a moment after a change.
 * @param {string[]} metrics @param {Paper} paper @param {Page} page
 * @returns {{drawn: {page: SVGSVGElement, panels: Loaded[]} | null, error: Error | null}}
 */
function useDrawn(metrics, paper, page) {
  const [state, setState] = useState(
    /** @type {{drawn: {page: SVGSVGElement, panels: Loaded[]} | null, error: Error | null}} */ ({
      drawn: null,
      error: null,
    }),
  );
  const panels = useRef({ key: '', loading: /** @type {Promise<Loaded[]>} */ (Promise.resolve([])) });
  const key = JSON.stringify([metrics, page.runs, page.view]);
  const { format, ...look } = paper;
  useEffect(() => {
    let isWanted = isDrawable(paper);
    const timer = setTimeout(async () => {
      if (!isWanted) return;
      try {
        if (panels.current.key !== key)
          panels.current = {
            key,
            loading: Promise.all(metrics.map((metric) => loadPanel(metric, makePrintPage(page), POINTS))),
          };
        const loadedPanels = await panels.current.loading;
        const drawnPage = await drawPage(
          loadedPanels.map((panel) => makeDrawing(panel, page, paper)),
          makeLegend(loadedPanels),
          paper,
        );
        if (isWanted) setState({ drawn: { page: drawnPage, panels: loadedPanels }, error: null });
      } catch (error) {
        panels.current.key = '';
        if (isWanted) setState({ drawn: null, error: /** @type {Error} */ (error) });
      }
    }, SETTLED_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [key, JSON.stringify(look)]);
  return state;
}

/** Returns the page with the colours for paper. @param {Page} page */
const makePrintPage = (page) => ({
  ...page,
  looks: new Map([...page.looks].map(([key, look]) => [key, { ...look, colour: look.print }])),
});

/** @param {Loaded} panel @param {Page} page @param {Paper} paper @returns {import('../../charts/picture.js').Drawing} */
function makeDrawing({ metric, view, shown, lines }, { onsets }, paper) {
  const shownPlot = document.querySelector(`.panel[data-metric=${CSS.escape(metric)}] .panel-plot`);
  const isAsSeen = view.yRange || view.outliers === false;
  return {
    figure: makeFigure(lines, {
      ...shown,
      theme: PAPER_THEME,
      titled: true,
      onsets: view.onsets === false || !paper.onsets ? [] : onsets,
    }),
    unit: shown.unit ?? '',
    yRange: isAsSeen ? readShownRange(/** @type {HTMLElement | null} */ (shownPlot)) : null,
  };
}

/**
 * Returns each line of the charts once.
 * @param {Loaded[]} panels @returns {import('../../charts/picture.js').Entry[]}
 */
function makeLegend(panels) {
  const lines = panels.flatMap((panel) => panel.lines).filter(({ role = 'main' }) => role === 'main');
  return [...new Map(lines.map((line) => [line.key ?? seriesKey(line.series), line])).values()];
}

/** @param {{page: SVGSVGElement | undefined, error: Error | null}} props */
function Preview({ page, error }) {
  const [address, setAddress] = useState('');
  useEffect(() => {
    if (!page) return undefined;
    const url = URL.createObjectURL(makeSvgBlob(page));
    setAddress(url);
    return () => URL.revokeObjectURL(url);
  }, [page]);
  if (error) return html`<p class="is-warning" role="alert">${error.message}</p>`;
  return html`<div class="figure-preview">
    ${address ? html`<img src=${address} alt="Preview of the figure" />` : html`<span class="faint">Drawing</span>`}
  </div>`;
}
