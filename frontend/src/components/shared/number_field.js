/** A field for a number in a dialog. */
import { html } from '../../dom.js';

/**
 * A labelled field with its help, or with its error in place of the help.
 * @param {{id: string, label: string, help: string, value: string, placeholder?: string, error?: string,
 *   onChange: (value: string) => void}} props
 */
export const NumberField = ({ id, label, help, value, placeholder, error, onChange }) =>
  html`<div class="evaluate-field">
    <label for=${id}>${label}</label>
    <input
      class="field"
      id=${id}
      inputmode="numeric"
      value=${value}
      placeholder=${placeholder}
      aria-invalid=${error ? 'true' : undefined}
      aria-describedby=${`${id}-help`}
      onInput=${(/** @type {any} */ event) => onChange(event.target.value)}
    />
    <span class=${error ? 'field-error' : 'faint'} id=${`${id}-help`} role=${error ? 'alert' : undefined}>
      ${error ?? help}
    </span>
  </div>`;
