/** Small number fields in a row. A text that is not a number stays in the field and changes nothing. */
import { html, useState } from '../../dom.js';

/**
 * @param {{label: string, typedText: string | null, value: string, placeholder?: string, isRight: boolean,
 *   inputmode: string, onType: (text: string | null) => void}} props
 */
const LabelledInput = ({
  label,
  typedText,
  value,
  placeholder,
  isRight,
  inputmode,
  onType,
}) => html`<label class="sweep-number">
  <span>${label}</span>
  <input
    class="field"
    inputmode=${inputmode}
    placeholder=${placeholder}
    value=${typedText ?? value}
    aria-invalid=${isRight ? undefined : 'true'}
    onInput=${(event) => onType(event.target.value)}
    onBlur=${() => onType(null)}
  />
</label>`;

/** @param {{label: string, value: number, onChange: (value: number) => void}} props */
export function WholeNumber({ label, value, onChange }) {
  const [typedText, setTypedText] = useState(/** @type {string | null} */ (null));
  const isRight = typedText === null || /^\d{1,10}$/.test(typedText);
  const onType = (/** @type {string | null} */ text) => {
    setTypedText(text);
    if (text !== null && /^\d{1,10}$/.test(text)) onChange(Number(text));
  };
  return html`<${LabelledInput}
    label=${label}
    typedText=${typedText}
    value=${String(value)}
    isRight=${isRight}
    inputmode="numeric"
    onType=${onType}
  />`;
}

/**
 * A field for a positive number, which may be empty.
 * @param {{label: string, value: number | null, placeholder?: string, onChange: (value: number | null) => void}} props
 */
export function FieldNumber({ label, value, placeholder, onChange }) {
  const [typedText, setTypedText] = useState(/** @type {string | null} */ (null));
  const isRight = typedText === null || !typedText.trim() || Number(typedText) > 0;
  const onType = (/** @type {string | null} */ text) => {
    setTypedText(text);
    if (text === null) return;
    if (!text.trim()) onChange(null);
    else if (Number(text) > 0 && Number.isFinite(Number(text))) onChange(Number(text));
  };
  return html`<${LabelledInput}
    label=${label}
    typedText=${typedText}
    value=${value === null ? '' : String(value)}
    placeholder=${placeholder}
    isRight=${isRight}
    inputmode="decimal"
    onType=${onType}
  />`;
}
