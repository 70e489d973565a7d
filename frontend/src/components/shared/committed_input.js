/** An input whose text takes effect with Enter or when it is left: a render in between keeps the text. */
import { html, useLayoutEffect, useRef } from '../../dom.js';

/**
 * `onCommit` gets the text without the space around it.
 * @param {{value: string | number, onCommit: (text: string) => void, [attribute: string]: unknown}} props
 */
export function CommittedInput({ value, onCommit, ...attributes }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => {
    if (input.current) input.current.value = String(value);
  }, [value]);
  const commit = (/** @type {Event & {target: HTMLInputElement}} */ event) => {
    const text = event.target.value.trim();
    event.target.value = String(value); // until a render brings what became of it: a refused text does not stay
    onCommit(text);
  };
  return html`<input ref=${input} ...${attributes} onChange=${commit} />`;
}
