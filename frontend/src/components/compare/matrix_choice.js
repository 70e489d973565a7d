/** The menus of the matrix: its columns and the planned number of seeds. */
import { html, useState } from '../../dom.js';
import { READINGS, keyTitle, needsThreshold } from '../../lib/runs/matrix.js';
import { CommittedInput } from '../shared/committed_input.js';
import { Menu } from '../shared/overlay.js';
import { Select } from '../shared/marks.js';

const MAX_COLUMNS = 16;

/** @param {{columns: string[], available: string[], change: (changes: object) => void}} props */
export function ColumnMenu({ columns, available, change }) {
  const [metric, setMetric] = useState('');
  const [reading, setReading] = useState('final');
  const [threshold, setThreshold] = useState('0.5');
  const chosenMetric = metric || available[0] || '';
  const key = [chosenMetric, reading, ...(needsThreshold(reading) ? [Number(threshold)] : [])].join(':');
  const isValid = chosenMetric && !columns.includes(key) && columns.length < MAX_COLUMNS && !key.endsWith('NaN');
  return html`<${Menu} label="Columns" align="right">
    <div class="matrix-columns">
      ${columns.map(
        (columnKey) => html`<label key=${columnKey} class="check">
          <input
            type="checkbox"
            checked
            disabled=${columns.length === 1}
            onChange=${() => change({ columns: columns.filter((shownKey) => shownKey !== columnKey) })}
          />
          ${keyTitle(columnKey)}
        </label>`,
      )}
      <form
        class="matrix-add"
        onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          if (isValid) change({ columns: [...columns, key] });
        }}
      >
        <${Select} label="metric" value=${chosenMetric} options=${available} onChange=${setMetric} />
        <${Select}
          label="reading"
          value=${reading}
          options=${Object.entries(READINGS).map(([value, { label }]) => ({ value, label }))}
          onChange=${setReading}
        />
        ${
          needsThreshold(reading) &&
          html`<label class="select">
            <span>threshold</span>
            <input
              class="field"
              type="number"
              step="any"
              value=${threshold}
              onInput=${(/** @type {any} */ event) => setThreshold(event.target.value)}
            />
          </label>`
        }
        <button class="button" disabled=${!isValid}>Add column</button>
      </form>
      <button class="button-quiet" onClick=${() => change({ columns: null })}>Default columns</button>
    </div>
  <//>`;
}

/**
 * A field for the number of seeds per variant that was fixed in advance. With it, Student's t is valid for one look.
 * @param {{planned: number | null, change: (changes: object) => void}} props
 */
export const PlanField = ({ planned, change }) => html`<label
  class="select"
  title="Seeds per variant that you fixed before looking. Empty: those of the launch; 0: no plan"
>
  <span>planned seeds</span>
  <${CommittedInput}
    class="field matrix-planned"
    type="number"
    min="0"
    max="1000"
    placeholder="as launched"
    value=${planned ?? ''}
    onCommit=${(/** @type {string} */ seeds) => change({ planned: seeds === '' ? null : Number(seeds) })}
  />
</label>`;
