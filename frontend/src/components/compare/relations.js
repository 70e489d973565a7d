/** Plots of results against settings: parallel coordinates and a scatter plot, in which a brush selects runs. */
import { html, useEffect, useMemo, useRef, useState } from '../../dom.js';
import { comparisonAddress } from '../../lib/runs/addresses.js';
import { makeAxis, filterBrushed, listPossibleAxes, chooseUsualAxes } from '../../lib/runs/axes.js';
import { makeRunField } from '../../lib/runs/fields.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { Menu } from '../shared/overlay.js';
import { Segments, Select } from '../shared/marks.js';
import { FieldChooser } from './chooser.js';
import { Parallel } from './parallel.js';
import { Scatter } from './scatter.js';

const MAX_LINES = 1000;

const formatAxisTitle = (/** @type {string} */ key) => makeRunField(key).title;

/**
 * @typedef {{plot: string, axes: string[] | null}} RelationsView `axes`: keys, of which a scatter plot uses the first
 *   two
 * @param {{runs: Api.RunItem[], view: RelationsView, change: (changes: object) => void,
 *   findLook: (run: Api.RunItem) => import('../../lib/colours.js').Look | undefined}} props
 */
export function Relations({ runs, view, change, findLook }) {
  const [brushes, setBrushes] = useState(/** @type {import('../../lib/runs/axes.js').Brushes} */ ({}));
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(element);
  const possible = useMemo(() => listPossibleAxes(runs), [runs]);
  const keys = (view.axes ?? chooseUsualAxes(possible)).filter((key) => possible.includes(key));
  const drawnRuns = runs.slice(0, MAX_LINES);
  const axes = useMemo(() => keys.map((key) => makeAxis(key, runs)), [keys.join('\n'), runs]);
  if (runs.length < 2 || possible.length < 2) return null;
  const isScatter = view.plot === 'scatter';
  const shownAxes = isScatter && axes.length ? [axes[0], axes[axes.length - 1]] : axes;
  const inside = filterBrushed(runs, shownAxes, brushes);
  const isBrushed = shownAxes.some(({ key }) => Object.hasOwn(brushes, key));
  const chosenIds = new Set(inside.map(({ id }) => id));
  const brush = (/** @type {Record<string, [number, number] | null>} */ changes) =>
    setBrushes((old) =>
      Object.fromEntries(
        /** @type {[string, [number, number]][]} */ (
          Object.entries({ ...old, ...changes }).filter(([, range]) => range !== null)
        ),
      ),
    );
  const plotProps = {
    runs: drawnRuns,
    axes: shownAxes,
    brushes,
    chosenIds,
    findLook,
    onBrush: brush,
    width,
  };
  const chooseAxis = (/** @type {number} */ index, /** @type {string} */ key) => {
    const next = [keys[0], keys.at(-1) ?? keys[0]];
    next[index] = key;
    change({ axes: next });
    setBrushes({});
  };
  return html`<section class="section" aria-labelledby="compare-relations">
    <div class="section-head">
      <h2 id="compare-relations">Settings and results</h2>
      <span class="faint">drag along an axis to select runs; last and best values of each run</span>
      <span class="spacer"></span>
      <${Segments}
        label="Plot"
        value=${isScatter ? 'scatter' : 'parallel'}
        options=${[{ value: 'parallel', label: 'parallel' }, { value: 'scatter', label: 'scatter' }]}
        onChange=${(plot) => change({ plot })}
      />
      ${
        isScatter
          ? html`
            <${Select} label="x" value=${keys[0]} options=${possible.map(makeOption)} onChange=${(key) => chooseAxis(0, key)} />
            <${Select}
              label="y"
              value=${keys.at(-1)}
              options=${possible.map(makeOption)}
              onChange=${(key) => chooseAxis(1, key)}
            />
          `
          : html`<${Menu} quiet align="right" label="axes">
            <${AxisChooser} keys=${keys} possible=${possible} change=${change} />
          <//>`
      }
    </div>
    <div class="card relations">
      <div ref=${element} class="relations-plot">
        ${width > 0 && (isScatter ? html`<${Scatter} ...${plotProps} />` : html`<${Parallel} ...${plotProps} />`)}
      </div>
      <div class="relations-foot toolbar">
        <span class="quiet" role="status">
          ${isBrushed && `${formatCount(inside.length)} of `}${plural(runs.length, 'run')}${isBrushed && ' selected'}
          ${drawnRuns.length < runs.length && `, the first ${formatCount(drawnRuns.length)} drawn`}
        </span>
        ${
          isBrushed &&
          html`
            ${
              inside.length > 0 &&
              html`<a class="button button-small" href=${comparisonAddress(inside.map(({ id }) => id))}>
                Compare the selected
              </a>`
            }
            <button class="button-quiet" onClick=${() => setBrushes({})}>
              Clear
            </button>
          `
        }
      </div>
    </div>
  </section>`;
}

const makeOption = (/** @type {string} */ key) => ({ value: key, label: formatAxisTitle(key) });

/** @param {{keys: string[], possible: string[], change: (changes: object) => void}} props */
function AxisChooser({ keys, possible, change }) {
  return html`<${FieldChooser}
    options=${possible}
    chosenKeys=${keys}
    onChange=${(/** @type {string[]} */ axes) => change({ axes })}
    formatTitle=${formatAxisTitle}
    label="Find an axis"
    placeholder="Find a field or metric"
    empty="No matching field or metric."
  >
    <button class="button-quiet" onClick=${() => change({ axes: undefined })}>
      Reset axes
    </button>
  <//>`;
}

/**
 * Returns the current width of an element in pixels, or 0 until it is known.
 * @param {{current: HTMLElement | null}} element
 */
function useWidth(element) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return undefined;
    const observer = new ResizeObserver(([{ contentRect }]) => setWidth(Math.floor(contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [Boolean(element.current)]);
  return width;
}
