/** Saved views: lists and comparisons of runs under a name, which all users of the service share. */
import { html, useEffect, useState } from '../../dom.js';
import { get, put, remove } from '../../data/api.js';
import { navigate } from '../../app/router.js';
import { say, sayError } from '../../app/state.js';
import { viewAddress } from '../../lib/runs/views.js';
import { Dialog, DialogButtons, Menu } from './overlay.js';
import { Icon } from './icons.js';
import { ForOperator } from './role.js';

/** @typedef {Omit<Api.ViewItem, 'id' | 'name' | 'changed_at'>} View */

/**
 * The menu of all views, which can also save the page's own view.
 * @param {{view: View, onOpen?: (item: Api.ViewItem) => void, children?: any}} props `view`: the view to save;
 *   `onOpen`: shows a view of the same kind without leaving the page; `children`: more fields of the dialog after the
 *   name
 */
export function ViewsMenu({ view, onOpen, children }) {
  const [isSaving, setIsSaving] = useState(false);
  const show = (/** @type {Api.ViewItem} */ item) =>
    onOpen && item.page === view.page ? onOpen(item) : navigate(viewAddress(item));
  return html`
    <${Menu} quiet label="views">
      ${(close) => html`<${Views}
        show=${show}
        close=${close}
        save=${() => {
          close();
          setIsSaving(true);
        }}
      />`}
    <//>
    ${
      isSaving &&
      html`<${SaveDialog} view=${view} onClose=${() => setIsSaving(false)}>
        ${children}
      <//>`
    }
  `;
}

const TITLES = { runs: 'Runs', compare: 'Comparisons' };

/** @param {{show: (item: Api.ViewItem) => void, close: () => void, save: () => void}} props */
function Views({ show, close, save }) {
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
    ${Object.entries(TITLES).map(([page, title]) => {
      const pageViews = views?.filter((item) => item.page === page) ?? [];
      return (
        pageViews.length > 0 &&
        html`<div key=${page} role="group" aria-label=${`Views of ${title}`}>
          <div class="menu-title">${title}</div>
          ${pageViews.map(
            (item) => html`<div class="view-item" key=${item.id}>
              <button
                class="menu-item"
                title=${item.query}
                onClick=${() => {
                  close();
                  show(item);
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
        </div>`
      );
    })}
    ${views?.length === 0 && html`<p class="menu-title">No saved views yet.</p>`}
    <${ForOperator}>
      <button class="menu-item" onClick=${save}>
        Save this view …
      </button>
    <//>
  `;
}

const KEPT = {
  runs: 'the search, the filters, the order, the groups and the columns',
  compare: 'the runs, the metrics and how their curves and tables are shown',
};

/** @param {{view: View, onClose: () => void, children?: any}} props */
function SaveDialog({ view, onClose, children }) {
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
      <p>Saves ${KEPT[view.page ?? 'runs']} for everyone who uses this service.</p>
      <input
        class="field wide"
        aria-label="Name of the view"
        placeholder="e.g. best of DAPO"
        maxlength="100"
        value=${name}
        autofocus
        onInput=${(event) => setName(event.target.value)}
      />
      ${children}
      ${error && html`<p class="field-error" role="alert">${error}</p>`}
      <${DialogButtons} onClose=${onClose} disabled=${!name.trim()} title="Replaces a view of the same name">Save<//>
    </form>
  <//>`;
}
