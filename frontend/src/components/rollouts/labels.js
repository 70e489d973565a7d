/** The labels of a completion. Everyone sees their roles and dates, and operators add, explain and remove them. */
import { html, useEffect, useState } from '../../dom.js';
import { post, remove } from '../../data/api.js';
import { mayChange, sayError } from '../../app/state.js';
import { Visible } from './text.js';

const OFFERED = ['hacked', 'good', 'weird'];

/** @param {{id: string, labels: Api.LabelItem[], onChange: () => void}} props `id`: of the completion */
export function Labels({ id, labels, onChange }) {
  const [items, setItems] = useState(labels);
  const [editedLabel, setEditedLabel] = useState(
    /** @type {{label: string, note: string, version: number} | null} */ (null),
  );
  useEffect(() => setItems(labels), [labels]);
  const path = `/rollouts/${encodeURIComponent(id)}/labels`;
  const store = async (/** @type {() => Promise<{items: Api.LabelItem[]}>} */ sendRequest) => {
    try {
      setItems((await sendRequest()).items);
      setEditedLabel(null);
      onChange();
    } catch (error) {
      sayError(error);
    }
  };
  return html`<div class="labels">
    ${items.map(
      (item) => html`<span class="tag" key=${item.label} title=${`${item.role}, ${item.changed_at}`}>
        <button
          type="button"
          class="label-name"
          disabled=${!mayChange.value}
          onClick=${() => setEditedLabel({ label: item.label, note: item.note, version: item.version })}
        >
          <${Visible} text=${item.label} />
        </button>
        ${
          mayChange.value &&
          html`<button
            type="button"
            class="label-name"
            aria-label=${`Remove the label ${item.label}`}
            onClick=${() => store(() => remove(path, { label: item.label, version: item.version }))}
          >
            ×
          </button>`
        }
      </span>
      ${
        item.note &&
        html`<span class="quiet label-note">
          <${Visible} text=${item.note} /> <span class="faint">${item.role}, ${item.changed_at.slice(0, 16)}</span>
        </span>`
      }`,
    )}
    ${
      mayChange.value &&
      !editedLabel &&
      html`<button
        type="button"
        class="button-quiet"
        onClick=${() => setEditedLabel({ label: '', note: '', version: 0 })}
      >
        + label
      </button>`
    }
    ${
      editedLabel &&
      html`<${Editor}
        editedLabel=${editedLabel}
        onCancel=${() => setEditedLabel(null)}
        onSave=${(/** @type {object} */ body) => store(() => post(path, body))}
      />`
    }
  </div>`;
}

/** @typedef {Event & {target: HTMLInputElement}} InputEvent */

/**
 * @param {{editedLabel: {label: string, note: string, version: number}, onCancel: () => void, onSave: (body: object) =>
 *   void}} props
 */
function Editor({ editedLabel, onCancel, onSave }) {
  const [label, setLabel] = useState(editedLabel.label);
  const [note, setNote] = useState(editedLabel.note);
  return html`<form
    class="label-form"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      if (label.trim()) onSave({ label, note, version: editedLabel.version });
    }}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && onCancel()}
  >
    ${
      editedLabel.version === 0 &&
      html`
        ${OFFERED.map(
          (name) => html`<button
            type="button"
            class="button button-small"
            key=${name}
            aria-pressed=${label === name}
            onClick=${() => setLabel(name)}
          >
            ${name}
          </button>`,
        )}
        <input
          class="field"
          aria-label="Label"
          placeholder="custom label"
          maxlength="40"
          value=${label}
          onInput=${(/** @type {InputEvent} */ event) => setLabel(event.target.value)}
        />
      `
    }
    <input
      class="field label-why"
      aria-label="Why"
      placeholder="why"
      maxlength="2000"
      value=${note}
      onInput=${(/** @type {InputEvent} */ event) => setNote(event.target.value)}
    />
    <button class="button button-small button-primary" disabled=${!label.trim()}>Save</button>
    <button type="button" class="button-quiet" onClick=${onCancel}>Cancel</button>
  </form>`;
}
