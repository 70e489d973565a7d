/** The values of a panel's lines at the cursor: the legend, copied text and the file. */
import { html, useComputed, useState } from '../../dom.js';
import { cursor, unpin } from '../../charts/cursor.js';
import { highlight } from '../../charts/crosshair.js';
import { copyText, download } from '../../app/actions.js';
import {
  NO_VALUE,
  countText,
  deltaText,
  endMeaning,
  computeHalf,
  positionText,
  readLines,
  tableAsCsv,
  tableAsText,
  makeTable,
} from '../../lib/reading.js';
import { formatValue, formatGrouped, plural } from '../../lib/text/format.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { Icon } from '../shared/icons.js';
import { Swatch } from '../shared/marks.js';
import { useSettled } from '../shared/settled.js';
import { useEnds, useLines } from './lines.js';

/** @typedef {import('./panel.js').PanelView} PanelView */
/** @typedef {import('../../lib/reading.js').Reading} Reading */
/** @typedef {import('../../lib/reading.js').Row} Row */

/** Number of requested points before a pinned cursor, because a thinned curve may lack the newest point. */
const POINTS_BEFORE_CURSOR = 10;
const SETTLED_MS = 150;
const MAX_UNDER_POINTER = 12;
const MAX_ROWS = 100;

/**
 * Returns the values of a panel's lines at the cursor, or their ends without a cursor.
 * @param {{metric: string, runs: string[], view: PanelView, looks: import('./lines.js').Looks,
 *   names: Map<string, string>, drawn: import('./lines.js').Line[], unit: string | null, enabled: boolean}} props
 *   `drawn`: the lines of the panel
 */
function useReading({ metric, runs, view, looks, names, drawn, enabled }) {
  const position = cursor.value;
  const x = position?.x ?? Infinity;
  const settledX = useSettled(position?.isPinned ? position.x : null, SETTLED_MS);
  const isThinned = drawn.some(({ series }) => series.raw_points > countValues(series));
  const needsExact = enabled && isThinned && settledX !== null && settledX === position?.x;
  /** @type {any} */
  const zoom = [null, settledX ?? 0];
  const nearView = { ...view, zoom };
  const exact = useLines(metric, runs, nearView, { enabled: needsExact, points: POINTS_BEFORE_CURSOR }, looks, names);
  const isExact = needsExact && exact.main.loaded && exact.all.length > 0;
  const ends = useEnds(metric, runs, view, enabled && position === null, looks, names);
  const atCursor = isExact ? exact.all : drawn;
  const lines = position === null && ends.loaded ? ends.lines : atCursor;
  return {
    reading: readLines(lines, x, view.baseline || null),
    isPinned: position?.isPinned ?? false,
    isRecorded: isExact || !isThinned || !Number.isFinite(x),
  };
}

/** Returns the number of recorded values behind the points of a line. @param {import('./lines.js').Series} series */
const countValues = ({ values, n, non_finite: nonFinite }) =>
  (n ? n.reduce((sum, count) => sum + count, 0) : values.length) + nonFinite.length;

/** @typedef {Parameters<typeof useReading>[0] & {title: string, onBaseline?: (key: string) => void}} ValuesProps */

/**
 * The table below a panel, with its actions.
 * @param {ValuesProps} props
 */
export function Values(props) {
  const { reading, isPinned, isRecorded } = useReading(props);
  const { metric, view, unit, onBaseline } = props;
  const [all, setAll] = useState(false);
  const table = () => makeTable(reading, { metric, unit, xKind: view.x, smoothing: view.smoothing });
  const rows = all ? reading.rows : reading.rows.slice(0, MAX_ROWS);
  const hiddenRows = reading.rows.length - rows.length;
  const name = `Values of ${metric}`;
  return html`<div class="values" role="group" aria-label=${name} onMouseLeave=${() => highlight(null)}>
    <div class="values-head">
      <${Position} reading=${reading} view=${view} metric=${metric} isPinned=${isPinned} isRecorded=${isRecorded} />
      <span class="spacer"></span>
      <button class="button-quiet" title="Copy these values" onClick=${() => copyText(tableAsText(table()), 'Values')}>
        <${Icon} name="copy" size=${12} /> Copy
      </button>
      <button
        class="button-quiet"
        title="These values as a file"
        onClick=${() => download(tableAsCsv(table()), `${metric}-values.csv`)}
      >
        CSV
      </button>
      ${
        isPinned &&
        html`<button
          class="button-icon" title="Release the cursor (Esc)" aria-label="Release the cursor" onClick=${unpin}
        >
          <${Icon} name="cross" size=${12} />
        </button>`
      }
    </div>
    <div class="values-scroll" tabindex="0" role="region" aria-label=${`Table of ${metric}`}>
      <${Table} reading=${reading} rows=${rows} view=${view} onBaseline=${onBaseline} />
      ${
        hiddenRows > 0 &&
        html`<button class="button-quiet" onClick=${() => setAll(true)}>
          ${plural(hiddenRows, 'more line')}
        </button>`
      }
    </div>
  </div>`;
}

/** A short table of values next to the pointer. @param {ValuesProps} props */
export function ValuesUnderPointer(props) {
  const { reading, isRecorded } = useReading(props);
  if (!cursor.value) return null;
  const { key } = cursor.value;
  const first = reading.rows.slice(0, MAX_UNDER_POINTER);
  const pointedRow = reading.rows.slice(MAX_UNDER_POINTER).find((row) => row.key === key);
  const rows = pointedRow ? [...first.slice(0, -1), pointedRow] : first;
  const hiddenRows = reading.rows.length - rows.length;
  return html`<div class="values is-floating" aria-hidden="true">
    <div class="values-head">
      <${Position}
        reading=${reading}
        view=${props.view}
        metric=${props.metric}
        isPinned=${false}
        isRecorded=${isRecorded}
      />
    </div>
    <${Table} reading=${reading} rows=${rows} view=${props.view} pointedKey=${key} />
    ${hiddenRows > 0 && html`<p class="faint">${plural(hiddenRows, 'more line')}: click the chart to pin and see all</p>`}
  </div>`;
}

/**
 * The position at which the values are read, with notes.
 * @param {{reading: Reading, view: PanelView, metric: string, isPinned: boolean, isRecorded: boolean}} props
 */
function Position({ reading: { x, baseline, isBaselineMissing }, view, metric, isPinned, isRecorded }) {
  return html`<span>
    <b>${positionText(view.x, x)}</b>
    ${x === Infinity && html`<span class="faint">: ${endMeaning(metric)}</span>`}
    ${isPinned && html`<span class="faint">${' '}pinned</span>`}
    ${
      !isRecorded &&
      html`<span class="faint" title="The curve is downsampled; a pinned cursor reads all recorded points">
        ${' '}drawn points
      </span>`
    }
    ${baseline !== null && html`<span class="faint"> · Δ to ${baseline}</span>`}
    ${
      isBaselineMissing &&
      html`<span class="is-warning">
        ${' '}no differences: the baseline ${view.baseline} is not among these lines
      </span>`
    }
  </span>`;
}

/**
 * @param {{reading: Reading, rows: Row[], view: PanelView, pointedKey?: string | null,
 *   onBaseline?: (key: string) => void}} props
 */
function Table({ reading, rows, view, pointedKey, onBaseline }) {
  const hasDelta = reading.baseline !== null;
  const hasCount = reading.rows.some(({ total }) => total !== null);
  const hasHalf = reading.x === Infinity && reading.rows.some(({ recorded }) => computeHalf(recorded) !== null);
  return html`<table class="values-table">
    <thead>
      <tr>
        <th>line</th>
        <th class="number">value</th>
        ${hasHalf && html`<th class="number" title="Half the width of the 95 % interval of the mean">± 95 % CI</th>`}
        ${reading.isSmoothed && html`<th class="number is-smoothed">smoothed ${view.smoothing}</th>`}
        ${hasDelta && html`<th class="number">Δ</th>`}
        ${hasCount && html`<th class="number">n</th>`}
        <th class="number">${view.x === 'step' ? 'step' : 'at'}</th>
      </tr>
    </thead>
    <tbody>
      ${rows.map(
        (row) => html`<tr
          key=${`${row.role} ${row.key}`}
          class=${row.key === pointedKey ? 'is-pointed' : undefined}
          onMouseEnter=${onBaseline && (() => highlight(row.key))}
        >
          <td class="values-name">
            <${Swatch} look=${row.look} isOff=${row.role === 'seed'} />
            ${
              onBaseline && row.role === 'main'
                ? html`<button
                  title=${row.isBaseline ? 'The baseline' : 'Compare with this line'}
                  aria-pressed=${row.isBaseline}
                  onClick=${() => onBaseline(row.isBaseline ? '' : row.key)}
                >
                  ${row.name}
                </button>`
                : html`<span>${row.name}</span>`
            }
          </td>
          <td class="number">
            ${
              row.recorded
                ? formatValue(row.recorded.value)
                : html`<${None} row=${row} isEnd=${reading.x === Infinity} />`
            }
          </td>
          ${hasHalf && html`<td class="number">${halfText(row)}</td>`}
          ${
            reading.isSmoothed &&
            html`<td class="number is-smoothed">${row.smoothed ? formatValue(row.smoothed.value) : ''}</td>`
          }
          ${hasDelta && html`<td class="number">${row.isBaseline ? 'baseline' : deltaText(row.delta)}</td>`}
          ${hasCount && html`<td class="number">${countText(row)}</td>`}
          <td class="number"><${Step} row=${row} view=${view} /></td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

const halfText = (/** @type {Row} */ { recorded }) => {
  const halfWidth = computeHalf(recorded);
  return halfWidth === null ? '' : `± ${formatValue(halfWidth)}`;
};

const None = (/** @type {{row: Row, isEnd: boolean}} */ { row, isEnd }) =>
  html`<span class="faint">${row.smoothed || isEnd ? 'loading' : NO_VALUE}</span>`;

/** The recorded step, marked if it is before the cursor. @param {{row: Row, view: PanelView}} props */
function Step({ row: { recorded, run, isOlder }, view }) {
  if (!recorded) return null;
  const text = view.x === 'step' || run ? formatGrouped(recorded.step) : positionText(view.x, recorded.x);
  const title = isOlder ? 'The newest value recorded at or before the cursor' : undefined;
  return run
    ? html`<a class=${isOlder ? 'is-older' : 'quiet'} title=${title ?? 'Read the completions of this step'}
        href=${rolloutsAddress(run, { step: recorded.step })}>${text}</a>`
    : html`<span class=${isOlder ? 'is-older' : undefined} title=${title}>${text}</span>`;
}

/** Returns whether the cursor is pinned in this panel, without rerendering while the pointer moves. */
export function usePinnedHere(/** @type {string} */ metric) {
  return useComputed(() => cursor.value?.isPinned === true && cursor.value.metric === metric).value;
}
