/** The name of a field in the form, with a link to the help where the field is a knob. */
import { html } from '../../dom.js';

const EXPLAINED = /^(objective|filters|length|updates)\./;

/** @param {{id: string, field: import('../../lib/launch/schema.js').Field, label: string, title?: string}} props */
export function Name({ id, field, label, title = field.path }) {
  return html`<label for=${id} title=${title}>${label}</label>
    ${
      EXPLAINED.test(field.path) &&
      html`<a
        class="form-reset"
        href=${`/help/methods#${field.path}`}
        target="_blank"
        title="Help"
        aria-label=${`Help: ${field.path}`}
        >?</a
      >`
    }`;
}
