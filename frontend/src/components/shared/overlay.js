/** Overlays of the page: dialog, menu and messages. */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../../dom.js';
import { dismiss, toasts } from '../../app/state.js';
import { layers } from '../../app/keys.js';
import { Icon, IconButton } from './icons.js';
import { lookup } from '../../lib/lookup.js';

/**
 * A modal dialog that Escape or a click outside closes. If it `holdsText` of the user, such a click does not close it.
 * @param {{title: string, onClose: () => void, children?: any, wide?: boolean, holdsText?: boolean}} props
 */
export function Dialog({ title, onClose, children, wide = false, holdsText = false }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    // before the next key, which belongs to the dialog
    element.current?.showModal();
  }, []);
  const outside = (/** @type {MouseEvent} */ event) => {
    if (event.target === element.current && !holdsText) onClose();
  };
  return html`<dialog
    ref=${element}
    class=${wide ? 'dialog dialog-wide' : 'dialog'}
    onClose=${onClose}
    onMouseDown=${outside}
    aria-label=${title}
  >
    <div class="dialog-body">
      <header>
        <h2>${title}</h2>
        <${IconButton} icon="cross" label="Close" onClick=${onClose} />
      </header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * The buttons at the end of a dialog's form: one that only closes the dialog, and the main one with these attributes.
 * @param {{onClose: () => void, children: any, disabled?: boolean, title?: string, autofocus?: boolean}} props
 */
export const DialogButtons = ({ onClose, children, ...attributes }) =>
  html`<footer>
    <button type="button" class="button" onClick=${onClose}>Cancel</button>
    <button class="button button-primary" ...${attributes}>${children}</button>
  </footer>`;

/**
 * A dialog that asks before an action that cannot be undone immediately.
 * @param {{title: string, text: any, confirm: string, onConfirm: () => void, onClose: () => void}} props
 */
export function Confirm({ title, text, confirm, onConfirm, onClose }) {
  const go = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    onClose();
    onConfirm();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${go}>
      <p>${text}</p>
      <${DialogButtons} onClose=${onClose} autofocus>${confirm}<//>
    </form>
  <//>`;
}

/**
 * A button with a panel below it, which a click elsewhere closes.
 * @param {{label: any, title?: string, align?: 'left'|'right', quiet?: boolean, children: any}} props
 */
export function Menu({ label, title, align = 'left', quiet = false, children }) {
  const [isOpen, setIsOpen] = useState(false);
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    const leave = (/** @type {MouseEvent} */ event) => {
      if (!element.current?.contains(/** @type {Node} */ (event.target))) setIsOpen(false);
    };
    const closeOnEscape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') {
        setIsOpen(false);
        element.current?.querySelector('button')?.focus();
      }
    };
    document.addEventListener('mousedown', leave);
    document.addEventListener('keydown', closeOnEscape);
    return () => {
      document.removeEventListener('mousedown', leave);
      document.removeEventListener('keydown', closeOnEscape);
    };
  }, [isOpen]);
  return html`<div class="menu" ref=${element}>
    <button
      class=${quiet ? 'button-quiet' : 'button'}
      aria-expanded=${isOpen}
      title=${title}
      onClick=${() => setIsOpen(!isOpen)}
    >
      ${label} <${Icon} name="down" size=${12} />
    </button>
    ${
      isOpen &&
      html`<div class=${`menu-panel menu-${align}`}>
        ${typeof children === 'function' ? children(() => setIsOpen(false)) : children}
      </div>`
    }
  </div>`;
}

/**
 * A menu of actions, which closes before an action runs.
 * @param {{items: {label: string, run: () => void}[], label: any, title?: string, quiet?: boolean}} props
 */
export function ActionMenu({ items, label, title, quiet }) {
  return html`<${Menu} label=${label} title=${title} align="right" quiet=${quiet}>
    ${(/** @type {() => void} */ close) =>
      items.map(
        ({ label: name, run }) => html`<button
          key=${name}
          class="menu-item"
          onClick=${() => {
            close();
            run();
          }}
        >
          ${name}
        </button>`,
      )}
  <//>`;
}

/** The stack of short messages. */
export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, tone, action }) => html`<div class=${`toast toast-${tone}`} key=${id}>
        <span>${text}</span>
        ${
          action &&
          html`<button
            class="button-quiet"
            onClick=${() => {
              dismiss(id);
              action.run();
            }}
          >
            ${action.label}
          </button>`
        }
        <${IconButton} icon="cross" size=${12} label="Dismiss" onClick=${() => dismiss(id)} />
      </div>`,
    )}
  </div>`;
}

/** The keyboard shortcuts of this page. @param {{onClose: () => void}} props */
export function KeyHelp({ onClose }) {
  const keys = new Map(
    layers.value.flatMap(({ current }) => Object.entries(current)).map(([key, { label }]) => [key, label]),
  );
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <dl class="key-help">
      ${[...keys].map(
        ([key, label]) => html`<div key=${key}>
          <dt>
            <kbd>${lookup(SPELLED, key) ?? key}</kbd>
          </dt>
          <dd>${label}</dd>
        </div>`,
      )}
      <div>
        <dt>
          <kbd>Ctrl K</kbd>
        </dt>
        <dd>Jump to a run, experiment, metric, setting or help</dd>
      </div>
      <div>
        <dt>
          <kbd>Esc</kbd>
        </dt>
        <dd>Leave a field or close a dialog</dd>
      </div>
    </dl>
  <//>`;
}

/** @type {Record<string, string>} */
const SPELLED = { ' ': 'Space', ArrowDown: '↓', ArrowUp: '↑', ArrowLeft: '←', ArrowRight: '→', Enter: '↵' };
