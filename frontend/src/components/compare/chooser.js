/** A list of fields with a search from which several can be chosen. Enter selects the first match. */
import { html, useState } from '../../dom.js';

/**
 * @param {{options: string[], chosenKeys: string[], onChange: (chosen: string[]) => void, formatTitle: (key: string)
 *   => string, label: string, placeholder: string, empty: string, children: any}} props `empty`: text shown if nothing
 *   is found
 */
export function FieldChooser({ options, chosenKeys, onChange, formatTitle, label, placeholder, empty, children }) {
  const [search, setSearch] = useState('');
  const matches = options.filter((key) => formatTitle(key).toLowerCase().includes(search.trim().toLowerCase()));
  const toggle = (/** @type {string} */ key) =>
    onChange(chosenKeys.includes(key) ? chosenKeys.filter((chosenKey) => chosenKey !== key) : [...chosenKeys, key]);
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || !search.trim() || !matches.length) return;
    event.preventDefault();
    toggle(matches[0]);
    setSearch('');
  };
  return html`<div class="column-chooser">
    <input
      class="field"
      type="search"
      placeholder=${placeholder}
      aria-label=${label}
      value=${search}
      onInput=${(event) => setSearch(event.target.value)}
      onKeyDown=${press}
    />
    <div class="column-list" role="group" aria-label="Fields">
      ${matches.map(
        (key) => html`<label class="menu-item" key=${key}>
          <input type="checkbox" checked=${chosenKeys.includes(key)} onChange=${() => toggle(key)} />
          ${formatTitle(key)}
        </label>`,
      )}
      ${!matches.length && html`<p class="menu-title">${empty}</p>`}
    </div>
    ${children}
  </div>`;
}
