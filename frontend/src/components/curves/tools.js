/** The menus of one panel: files to download, and the settings of the panel. */
import { html, useState } from '../../dom.js';
import { Icon } from '../shared/icons.js';
import { ActionMenu, Menu } from '../shared/overlay.js';
import { Select } from '../shared/marks.js';
import { SMOOTHING } from './controls.js';
import { changeTuning, findTuning } from './tuning.js';

/** @typedef {import('./tuning.js').Tuning} Tuning */
/** @typedef {{label: string, run: () => void}} File */

/** @param {{files: File[]}} props */
export function DownloadMenu({ files }) {
  const label = html`<${Icon} name="download" label="Download" />`;
  return html`<${ActionMenu} items=${files} label=${label} title="Download" quiet />`;
}

const PAGE_DEFAULT = 'page';
const LOG = [
  { value: PAGE_DEFAULT, label: 'as on the page' },
  { value: 'true', label: 'logarithmic' },
  { value: 'false', label: 'linear' },
];

/**
 * The settings of one panel (log y, smoothing and y range), with notes on its data.
 * @param {{metric: string, tune: import('./tuning.js').Tunings | undefined, readSeenRange: () => [number, number] |
 *   null, notes: {text: string}[], change: (changes: {tune: import('./tuning.js').Tunings}) => void}} props
 *   `readSeenRange`: returns the current range of y
 */
export function SettingsMenu({ metric, tune, readSeenRange, notes, change }) {
  const tuning = findTuning(tune, metric);
  const applyChanges = (/** @type {Tuning} */ changes) => change({ tune: changeTuning(tune, metric, changes) });
  const isTuned = Object.keys(tuning).length > 0;
  return html`<${Menu}
    label=${html`<${Icon} name="dots" label="Settings of this chart" />`}
    title="Settings of this chart"
    align="right"
    quiet
  >
    <div class="panel-settings">
      <${Select}
        label="y axis"
        value=${tuning.logY === undefined ? PAGE_DEFAULT : String(tuning.logY)}
        options=${LOG}
        onChange=${(/** @type {string} */ value) => applyChanges({ logY: value === PAGE_DEFAULT ? undefined : value === 'true' })}
      />
      <${Select}
        label="smoothing"
        value=${tuning.smoothing === undefined ? PAGE_DEFAULT : String(tuning.smoothing)}
        options=${[
          { value: PAGE_DEFAULT, label: 'as on the page' },
          ...SMOOTHING.map((s) => ({ value: String(s), label: s ? String(s) : 'off' })),
        ]}
        onChange=${(/** @type {string} */ value) => applyChanges({ smoothing: value === PAGE_DEFAULT ? undefined : Number(value) })}
      />
      <${RangeFields} key=${JSON.stringify(tuning.y)} range=${tuning.y ?? readSeenRange()} onRange=${(y) => applyChanges({ y })} />
      ${
        isTuned &&
        html`<button class="button button-small" onClick=${() => change({ tune: changeTuning(tune, metric, EMPTY) })}>
          As on the page
        </button>`
      }
      <p class="panel-made-of quiet">${notes.map(({ text }) => text).join(' · ')}</p>
    </div>
  <//>`;
}

/** @type {Tuning} */
const EMPTY = { logY: undefined, smoothing: undefined, y: undefined };

/** @param {{range: [number, number] | null, onRange: (range: [number, number]) => void}} props */
function RangeFields({ range, onRange }) {
  const [texts, setTexts] = useState((range ?? [0, 1]).map((edge) => String(Number(edge.toPrecision(4)))));
  const edges = texts.map((text) => (text.trim() === '' ? NaN : Number(text)));
  const isValid = edges.every(Number.isFinite) && edges[0] < edges[1];
  const field = (/** @type {number} */ index, /** @type {string} */ label) => html`<label>
    <span>${label}</span>
    <input
      class="field"
      inputmode="decimal"
      value=${texts[index]}
      onInput=${(/** @type {any} */ event) => setTexts(texts.map((text, i) => (i === index ? event.target.value : text)))}
    />
  </label>`;
  return html`<form
    class="panel-range"
    onSubmit=${(/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      if (isValid) onRange(/** @type {[number, number]} */ (edges));
    }}
  >
    ${field(0, 'y from')} ${field(1, 'to')}
    <button class="button button-small" disabled=${!isValid} title="Alt and the wheel also stretch the y axis">
      Set
    </button>
    ${!isValid && html`<span class="is-warning">two numbers, the smaller first</span>`}
  </form>`;
}
