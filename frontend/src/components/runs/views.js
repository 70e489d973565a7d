/** Saved views: lists of runs under a name, shared by all who use the service. */
import { html, useEffect, useState } from '../../dom.js';
import { get, put, remove } from '../../data/api.js';
import { say, sayError } from '../../app/state.js';
import { Dialog, Menu } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';

/** @typedef {import('../../views/runs.js').RunsView} RunsView */

/** What of a page's view is saved. @param {RunsView} view @param {string[]} usual columns */
const savedOf = ({ q, status, verdict, tag, variant, experiment, archived, sort, group, columns }, usual) => ({
  query: q,
  status,
  verdict,
  tag,
  variant,
  experiment,
  archived,
  sort,
  group,
  columns: columns.join() === usual.join() ? null : columns,
});

/** The changes that show a saved view. @param {Api.ViewItem} view */
const shownBy = ({ query, status, verdict, tag, variant, experiment, archived, sort, group, columns }) => ({
  q: query,
  status,
  verdict,
  tag,
  variant,
  experiment,
  archived,
  trash: false,
  sort,
  group,
  columns: columns ?? undefined,
});

/** @param {{view: RunsView, change: Function, usual: string[]}} props `usual`: the columns of a new list */
export function ViewsMenu({ view, change, usual }) {
  const [saving, setSaving] = useState(false);
  return html`
    <${Menu} quiet label="views">
      ${(close) => html`<${Views}
        change=${change}
        close=${close}
        save=${() => {
          close();
          setSaving(true);
        }}
      />`}
    <//>
    ${saving && html`<${SaveDialog} view=${savedOf(view, usual)} onClose=${() => setSaving(false)} />`}
  `;
}

/** @param {{change: Function, close: () => void, save: () => void}} props */
function Views({ change, close, save }) {
  const [views, setViews] = useState(/** @type {Api.ViewItem[] | null} */ (null));
  const load = () => get('/views').then(({ items }) => setViews(items), sayError);
  useEffect(() => void load(), []);
  const forget = async (/** @type {Api.ViewItem} */ item) => {
    const { id, changed_at: _, ...view } = item;
    try {
      await remove(`/views/${id}`);
      const back = () => put('/views', view).catch(sayError);
      say(`View ${item.name} deleted`, { action: { label: 'Undo', run: back } });
    } catch (error) {
      sayError(error);
    }
    load();
  };
  return html`
    ${views?.map(
      (item) => html`<div class="view-item" key=${item.id}>
        <button
          class="menu-item"
          title=${item.query}
          onClick=${() => {
            close();
            change(shownBy(item));
          }}
        >
          ${item.name}
        </button>
        <${ForOperator}>
          <button class="button-icon" aria-label=${`Delete the view ${item.name}`} onClick=${() => forget(item)}>
            <${Icon} name="cross" size=${12} />
          </button>
        <//>
      </div>`,
    )}
    ${views?.length === 0 && html`<p class="menu-title">No view is saved yet.</p>`}
    <${ForOperator}>
      <button class="menu-item" onClick=${save}>
        Save this view …
      </button>
    <//>
  `;
}

/** @param {{view: object, onClose: () => void}} props */
function SaveDialog({ view, onClose }) {
  const [name, setName] = useState('');
  const [error, setError] = useState('');
  const save = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    try {
      await put('/views', { ...view, name: name.trim() });
      say(`View ${name.trim()} saved`);
      onClose();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return html`<${Dialog} title="Save this view" onClose=${onClose}>
    <form onSubmit=${save}>
      <p>It keeps the search, the filters, the order, the groups and the columns, for everybody on this service.</p>
      <input
        class="field wide"
        aria-label="Name of the view"
        placeholder="e.g. best of DAPO"
        maxlength="100"
        value=${name}
        autofocus
        onInput=${(event) => setName(event.target.value)}
      />
      ${error && html`<p class="field-error" role="alert">${error}</p>`}
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary" disabled=${!name.trim()} title="Replaces a view of the same name">
          Save
        </button>
      </footer>
    </form>
  <//>`;
}
