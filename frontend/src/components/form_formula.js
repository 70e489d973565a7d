/** The objective of a config as the server writes it down, and doubts about the config. */
import { html } from '../dom.js';
import { Icon } from './icons.js';

/** @param {{valid: {formula: string, warnings: string[]}}} props */
export function Formula({ valid }) {
  return html`<pre class="formula-text">${valid.formula}</pre>
    ${valid.warnings.map((warning) => html`<p class="formula-warning" key=${warning}><${Icon} name="warn" size=${12} /> ${warning}</p>`)}`;
}
