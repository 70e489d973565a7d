/** A list of fields with a search from which several can be chosen. Enter selects the first match. */
import { html, useState } from '../../dom.js';

/**
 * @param {{options: string[], chosen: string[], onChange: (chosen: string[]) => void, titleOf: (key: string) => string,
 *   label: string, placeholder: string, empty: string, children: any}} props `empty`: text shown if nothing is found
 */
export function FieldChooser({ options, chosen, onChange, titleOf, label, placeholder, empty, children }) {
  const [search, setSearch] = useState('');
  const matches = options.filter((key) => titleOf(key).toLowerCase().includes(search.trim().toLowerCase()));
  const toggle = (/** @type {string} */ key) =>
    onChange(chosen.includes(key) ? chosen.filter((chosenKey) => chosenKey !== key) : [...chosen, key]);
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
          <input type="checkbox" checked=${chosen.includes(key)} onChange=${() => toggle(key)} />
          ${titleOf(key)}
        </label>`,
      )}
      ${!matches.length && html`<p class="menu-title">${empty}</p>`}
    </div>
    ${children}
  </div>`;
}
