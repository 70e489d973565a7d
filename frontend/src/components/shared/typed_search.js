import { html, useEffect, useRef, useState } from '../../dom.js';

/**
 * A search field that reports its text a moment after the last key.
 * @param {{value: string, onChange: (text: string) => void, placeholder: string, autofocus?: boolean}} props
 */
export function TypedSearch({ value, onChange, placeholder, autofocus = false }) {
  const [typedText, setTypedText] = useState(value);
  const lastText = useRef(value);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (autofocus) input.current?.focus();
  }, []);
  useEffect(() => {
    if (value !== lastText.current) {
      lastText.current = value;
      setTypedText(value);
    }
  }, [value]);
  useEffect(() => {
    if (typedText === lastText.current) return undefined;
    const timer = setTimeout(() => {
      lastText.current = typedText;
      onChange(typedText);
    }, 200);
    return () => clearTimeout(timer);
  }, [typedText]);
  return html`<input
    class="field"
    type="search"
    value=${typedText}
    placeholder=${placeholder}
    aria-label=${placeholder}
    ref=${input}
    onInput=${(event) => setTypedText(event.target.value)}
  />`;
}
