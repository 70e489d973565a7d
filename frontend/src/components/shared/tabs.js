/** The tabs of a page, with arrow keys to move between them. */
import { html } from '../../dom.js';

/**
 * @param {{tabs: {value: string, label: string, title?: string}[], activeTab: string, label: string,
 *   onGo: (tab: string) => void}} props
 */
export function Tabs({ tabs, activeTab, label, onGo }) {
  const move = (/** @type {KeyboardEvent & {currentTarget: HTMLElement}} */ event) => {
    const offset = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!offset) return;
    event.preventDefault();
    const index = tabs.findIndex(({ value }) => value === activeTab);
    const next = tabs[(index + offset + tabs.length) % tabs.length].value;
    onGo(next);
    const tab = event.currentTarget.querySelector(`#tab-${next}`);
    if (tab instanceof HTMLElement) tab.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      (tab) => html`<button
        type="button"
        key=${tab.value}
        role="tab"
        id=${`tab-${tab.value}`}
        title=${tab.title}
        aria-selected=${tab.value === activeTab}
        aria-controls="tab-panel"
        tabindex=${tab.value === activeTab ? 0 : -1}
        onClick=${() => onGo(tab.value)}
      >
        ${tab.label}
      </button>`,
    )}
  </div>`;
}

/** The content of the chosen tab. @param {{activeTab: string, children?: any}} props */
export const TabPanel = ({ activeTab, children }) =>
  html`<div class="tab-body" role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${activeTab}`}>${children}</div>`;
