/** The notes of a run, which are free text. */
import { html, useState } from '../../dom.js';
import { patch } from '../../data/api.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

const MAX_CHARACTERS = 20_000;

/**
 * The notes as they were written, or nothing if there are none.
 * @param {{run: Api.RunItem, onEdit: () => void}} props
 */
export function Notes({ run, onEdit }) {
  const notes = run.notes?.trim();
  return (
    notes &&
    html`<section class="run-notes" aria-label="Notes">
      <div class="run-notes-text" tabindex="0" role="group" aria-label="Text of the notes">${notes}</div>
      <${ForOperator}>
        <button class="button-quiet" onClick=${onEdit}>
          Edit notes
        </button>
      <//>
    </section>`
  );
}

/**
 * The editor of the notes, which stays open with the text until the service has stored it.
 * @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, onClose: () => void}} props
 */
export function NotesDialog({ run, onChange, onClose }) {
  const [savedNotes] = useState(run.notes);
  const [notes, setNotes] = useState(savedNotes);
  const [failure, setFailure] = useState('');
  const type = (/** @type {Event & {currentTarget: HTMLTextAreaElement}} */ { currentTarget: field }) => {
    const isLong = [...field.value].length > MAX_CHARACTERS;
    field.setCustomValidity(isLong ? `At most ${MAX_CHARACTERS.toLocaleString('en')} characters` : '');
    setNotes(field.value);
  };
  const save = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (notes === savedNotes) return onClose();
    try {
      onChange(await patch(`/runs/${run.id}`, { notes }));
      onClose();
    } catch (error) {
      setFailure(/** @type {Error} */ (error).message);
    }
  };
  return html`<${Dialog} title="Notes" onClose=${onClose} holdsText=${notes !== savedNotes}>
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
      ${
        run.notes !== savedNotes &&
        html`<p class="form-errors" role="alert">
          These notes were changed while you were writing; saving replaces the other text.
        </p>`
      }
      ${failure && html`<p class="form-errors" role="alert">Not saved: ${failure}</p>`}
      <${DialogButtons} onClose=${onClose}>Save<//>
    </form>
  <//>`;
}
