/** The parts of every field in the form: a row with the label, the help sentence, the errors and the reset. */
import { html } from '../../dom.js';
import { rangeText } from '../../lib/launch/schema.js';
import { spell } from '../../lib/launch/layers.js';
import { Name } from './name.js';
import { SweepKnob } from './sweep_knob.js';
import { Icon } from '../shared/icons.js';

/**
 * The properties that all fields of a layer share.
 * @typedef {{root: import('../../lib/launch/schema.js').Node, isOwn: (path: string) => boolean,
 *   errorsAt: (path: string) => string[],
 *   onChange: (path: string, value: any) => void, onReset?: (path: string) => void, belowAt: (path: string) => any,
 *   onSweep?: (path: string, values: string) => void, sweptAt?: (path: string) => string | undefined,
 *   secondary?: string[], isOff?: (path: string) => boolean, differsAt?: (path: string) => string,
 *   item?: any, uploaded?: string}} Layer `secondary`: paths of fields that are shown only on request; `isOff`:
 *   whether a field has no effect now; `differsAt`: the values of variants that differ in a field; `item`: the item of
 *   a list whose fields these are; `uploaded`: a file of this visit; `sweptAt`: the values of a knob of the sweep
 * @typedef {import('../../lib/launch/schema.js').Field} Field
 */

/** @typedef {{field: Field, value: any, layer: Layer, label: string}} FieldProps */

/** A sentence of the schema, in which text between backticks is code. @param {{text: string}} props */
export function Sentence({ text }) {
  return text.split('`').map((segment, i) => (i % 2 ? html`<code>${segment}</code>` : segment));
}

/**
 * Label, field, sentence, range and errors of a single value. A `wide` field is on a separate line.
 * @param {{field: Field, layer: Layer, label: string, id: string, wide?: boolean, value?: any, children?: any}} props
 */
export function Row({ field, layer, label, id, wide = false, value, children }) {
  const errors = layer.errorsAt(field.path);
  return html`<div
    class=${`form-field${layer.isOwn(field.path) ? ' is-own' : ''}${wide ? ' is-wide' : ''}`}
    data-path=${field.path}
  >
    <div class="form-label">
      <${Name} id=${id} field=${field} label=${label} />
      <${Reset} field=${field} layer=${layer} />
      <${SweepKnob} field=${field} value=${value} layer=${layer} />
    </div>
    ${children}
    <${Differs} field=${field} layer=${layer} />
    <p class="form-help" id=${`${id}-help`}>
      <${Sentence} text=${field.node.description ?? ''} /> <span class="form-range">${rangeText(field.node)}</span>
    </p>
    <${Errors} errors=${errors} id=${`${id}-error`} />
  </div>`;
}

/** The values of the variants if they differ. @param {{field: Field, layer: Layer}} props */
export function Differs({ field, layer }) {
  const values = layer.differsAt?.(field.path);
  return values && html`<p class="form-differs">${values}</p>`;
}

/** The button that resets a field to the value of the layer below. @param {{field: Field, layer: Layer}} props */
export function Reset({ field, layer }) {
  if (!layer.onReset || !layer.isOwn(field.path)) return null;
  const below = layer.belowAt(field.path);
  const title = `Back to ${typeof below === 'object' ? spell(below) : (below ?? 'nothing')}`;
  return html`<button
    type="button"
    class="form-reset"
    title=${title}
    aria-label=${`${title}: ${field.path}`}
    onClick=${() => layer.onReset?.(field.path)}
  >
    <${Icon} name="refresh" size=${12} />
  </button>`;
}

/** @param {{errors: string[], id: string}} props */
export const Errors = ({ errors, id }) =>
  errors.length > 0 &&
  html`<div id=${id} role="alert">
    <ul class="form-errors">
      ${errors.map((message) => html`<li>${message}</li>`)}
    </ul>
  </div>`;

/** Returns the attributes of an input with this id. @param {string} id @param {string[]} errors */
export const makeAriaProps = (id, errors) => ({
  'aria-describedby': errors.length ? `${id}-error ${id}-help` : `${id}-help`,
  'aria-invalid': errors.length ? 'true' : undefined,
});
