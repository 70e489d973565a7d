/** A list in the form whose items are fixed options, with a checkbox for each. */
import { html, useId } from '../../dom.js';
import { Row } from './row.js';

/** @param {import('./row.js').FieldProps} props */
export function ChoicesField({ field, value, layer, label }) {
  const id = useId();
  /** @type {string[]} */
  const options = field.node.items.enum;
  const chosenOptions = Array.isArray(value) ? value : [];
  const turn = (/** @type {string} */ option) =>
    layer.onChange(
      field.path,
      options.filter((word) => chosenOptions.includes(word) !== (word === option)),
    );
  return html`<${Row} field=${field} layer=${layer} label=${label} id=${id} wide>
    <span class="form-choices" role="group" aria-label=${label} aria-describedby=${`${id}-help`}>
      ${options.map(
        (option, i) => html`<label key=${option}>
          <input
            type="checkbox"
            id=${i ? undefined : id}
            checked=${chosenOptions.includes(option)}
            onChange=${() => turn(option)}
          />
          ${option}
        </label>`,
      )}
    </span>
  <//>`;
}
