/**
 * The columns of a file before its upload: the recognized ones, which can be changed, and three rows read with them.
 */
import { html, useId } from '../../dom.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { Heads } from '../shared/data_table.js';

/** @typedef {Api.ColumnMapping} Mapping */

/** Parts of an answer that can be used. @type {[string, string, Partial<Mapping>][]} */
const PARTS = [
  ['text', 'the whole text', { answer_after: '', answer_form: 'text' }],
  ['####', 'what follows ####', { answer_after: '####', answer_form: 'text' }],
  ['boxed', 'the last \\boxed{}', { answer_after: '', answer_form: 'boxed' }],
];

/** @param {Mapping} mapping */
const findPart = ({ answer_after: after, answer_form: form }) => (form === 'boxed' ? 'boxed' : after || 'text');

/**
 * @param {{name: string, preview: Api.DatasetPreview, mapping: Mapping | null,
 *   onChange: (changes: Partial<Mapping>) => void, onKeep: () => void, onCancel: () => void}} props
 */
export function Columns({ name, preview, mapping, onChange, onKeep, onCancel }) {
  const { columns, rows, notes } = preview;
  const isBroken = mapping !== null && rows.every(({ error }) => error);
  return html`<section class="dataset-columns" aria-label="Columns of the file">
    <p>
      <strong><bdi>${name}</bdi></strong>
      ${
        mapping
          ? html`: check that its first rows are read as you intended.`
          : html`: no column was recognised. Choose the one with the prompt.`
      }
    </p>
    <div class="dataset-mapping">
      <${Choice}
        label="Prompt"
        value=${mapping?.prompt_field}
        options=${columns.map((column) => [column, column])}
        onChange=${(/** @type {string} */ column) => onChange({ prompt_field: column })}
      />
      <${Choice}
        label="Answer"
        value=${mapping?.answer_field}
        options=${columns.map((column) => [
          column,
          column === mapping?.prompt_field ? `${column}: the last message` : column,
        ])}
        onChange=${(/** @type {string} */ column) => onChange({ answer_field: column })}
      />
      <${Choice}
        label="Part of the answer"
        value=${mapping ? findPart(mapping) : 'text'}
        options=${PARTS.map(([key, title]) => [key, title])}
        onChange=${(/** @type {string} */ chosenKey) => onChange(PARTS.find(([key]) => key === chosenKey)?.[2] ?? {})}
      />
    </div>
    ${
      rows.length > 0 &&
      html`<table class="table">
        <${Heads} heads=${['prompt', 'answer']} />
        <tbody>
          ${rows.map(
            ({ prompt, answer, error, is_held_out: isHeldOut }, i) => html`<tr key=${i}>
              ${
                error
                  ? html`<td colspan="2" class="form-errors">${error}</td>`
                  : html`
                    <td><bdi>${toOneLine(prompt)}</bdi> ${isHeldOut && html`<span class="tag">held out</span>`}</td>
                    <td><bdi>${toOneLine(answer)}</bdi></td>
                  `
              }
            </tr>`,
          )}
        </tbody>
      </table>`
    }
    ${notes.map((note) => html`<p class="form-help" key=${note}>${note}</p>`)}
    <div class="toolbar">
      <button type="button" class="button button-primary" disabled=${!mapping || isBroken} onClick=${onKeep}>
        Upload this file
      </button>
      <button type="button" class="button" onClick=${onCancel}>
        Cancel
      </button>
    </div>
  </section>`;
}

/**
 * @param {{label: string, value?: string, options: string[][], onChange: (value: string) => void}} props
 */
function Choice({ label, value, options, onChange }) {
  const id = useId();
  const isKnown = options.some(([key]) => key === value);
  return html`<div>
    <label for=${id}>${label}</label>
    <span class="select">
      <select id=${id} value=${value ?? ''} onChange=${(event) => onChange(event.target.value)}>
        ${!isKnown && html`<option value=${value ?? ''} selected>${value ?? 'Choose …'}</option>`}
        ${options.map(
          ([key, title]) => html`<option key=${key} value=${key} selected=${key === value}>
            ${title}
          </option>`,
        )}
      </select>
    </span>
  </div>`;
}
