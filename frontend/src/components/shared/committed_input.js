/** An input that commits its text on Enter or blur; a render in between keeps what was typed. */
import { html, useLayoutEffect, useRef } from '../../dom.js';

/**
 * `onCommit` receives the trimmed text.
 * @param {{value: string | number, onCommit: (text: string) => void, [attribute: string]: unknown}} props
 */
export function CommittedInput({ value, onCommit, ...attributes }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => {
    if (input.current) input.current.value = String(value);
  }, [value]);
  const commit = (/** @type {Event & {target: HTMLInputElement}} */ event) => {
    const text = event.target.value.trim();
    event.target.value = String(value); // If the parent accepts the text, the next render shows it.
    onCommit(text);
  };
  return html`<input ref=${input} ...${attributes} onChange=${commit} />`;
}
