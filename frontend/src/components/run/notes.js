/** Notes of a run: free text that people keep with it. */
import { html, useState } from '../../dom.js';
import { changeRun } from '../../data/actions.js';
import { Dialog } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

const MOST_CHARACTERS = 20_000;

/** @typedef {{run: Api.RunItem, onChange: (run: Api.RunItem) => void}} Props */

/** The notes as they were written, where there are any. @param {Props} props */
export function Notes({ run, onChange }) {
  const [editing, edit] = useState(false);
  if (!run.notes?.trim()) return null;
  return html`<section class="run-notes" aria-label="Notes">
    <p>${run.notes.trim()}</p>
    <${ForOperator}>
      <button class="button-quiet" onClick=${() => edit(true)}>
        Edit notes
      </button>
    <//>
    ${editing && html`<${NotesDialog} run=${run} onChange=${onChange} onClose=${() => edit(false)} />`}
  </section>`;
}

/** @param {Props & {onClose: () => void}} props */
export function NotesDialog({ run, onChange, onClose }) {
  const [notes, setNotes] = useState(run.notes);
  const type = (/** @type {Event & {currentTarget: HTMLTextAreaElement}} */ { currentTarget: field }) => {
    const isLong = [...field.value].length > MOST_CHARACTERS;
    field.setCustomValidity(isLong ? `At most ${MOST_CHARACTERS.toLocaleString('en')} characters` : '');
    setNotes(field.value);
  };
  const save = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    onClose();
    if (notes !== run.notes) changeRun(run.id, { notes }, onChange);
  };
  return html`<${Dialog} title="Notes" onClose=${onClose}>
    <form onSubmit=${save}>
      <textarea
        class="field wide"
        aria-label="Notes"
        rows="8"
        placeholder="What you tried and what you saw"
        value=${notes}
        autofocus
        onInput=${type}
      ></textarea>
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary">Save</button>
      </footer>
    </form>
  <//>`;
}
