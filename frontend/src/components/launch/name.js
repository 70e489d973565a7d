/** The name of a field in the form: words before the key, with a link to the help if the field is a knob. */
import { html } from '../../dom.js';
import { findWords } from '../../lib/launch/settings.js';

const EXPLAINED_PATH = /^(objective|filters|length|updates)\./;

/** @param {{id: string, field: import('../../lib/launch/schema.js').Field, label: string, title?: string}} props */
export function Name({ id, field, label, title = field.path }) {
  const words = findWords(field.path);
  return html`<label for=${id} title=${title}>
      ${words && html`<span class="form-words">${words}</span> `}<span class=${words ? 'faint' : ''}>${label}</span>
    </label>
    ${
      EXPLAINED_PATH.test(field.path) &&
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
