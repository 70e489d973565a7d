/** An input that commits its text on Enter or blur and keeps the typed text when it is rendered in between. */
import { html, useLayoutEffect, useRef } from '../../dom.js';

/**
 * An input whose `onCommit` receives the trimmed text.
 * @param {{value: string | number, onCommit: (text: string) => void, [attribute: string]: unknown}} props
 */
export function CommittedInput({ value, onCommit, ...attributes }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => {
    if (input.current) input.current.value = String(value);
  }, [value]);
  const commit = (/** @type {Event & {target: HTMLInputElement}} */ event) => {
    const text = event.target.value.trim();
    event.target.value = String(value); // if the parent accepts the text, the next render shows it
    onCommit(text);
  };
  return html`<input ref=${input} ...${attributes} onChange=${commit} />`;
}
