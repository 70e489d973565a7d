/** The choice of what runs share a mean: one or several fields. */
import { html, useMemo, useState } from '../../dom.js';
import { fieldsThatDiffer, keysOf } from '../../lib/runs/grouping.js';
import { Menu } from '../shared/overlay.js';

/** @type {Record<string, string>} */
const TITLES = {
  variant: 'variant',
  experiment: 'experiment',
  tag: 'tags',
  verdict: 'verdict',
  config: 'config, all but the seed',
};
const titleOf = (/** @type {string} */ key) => TITLES[key] ?? key.replace(/^config\./, '');

/** @param {{by: string, runs: Api.RunItem[], onChange: (by: string) => void}} props */
export function GroupBy({ by, runs, onChange }) {
  const keys = keysOf(by);
  const label = html`<span>by <b>${keys.map(titleOf).join(', ')}</b></span>`;
  return html`<${Menu} quiet label=${label} title="Group runs by">
    <${Choice} keys=${keys} runs=${runs} onChange=${onChange} />
  <//>`;
}

/** @param {{keys: string[], runs: Api.RunItem[], onChange: (by: string) => void}} props */
function Choice({ keys, runs, onChange }) {
  const [search, setSearch] = useState('');
  const fields = useMemo(() => fieldsThatDiffer(runs).map((path) => `config.${path}`), [runs]);
  const options = [...new Set([...Object.keys(TITLES), ...keys, ...fields])];
  const found = options.filter((key) => titleOf(key).toLowerCase().includes(search.trim().toLowerCase()));
  const toggle = (/** @type {string} */ key) => {
    const next = keys.includes(key) ? keys.filter((old) => old !== key) : [...keys, key];
    onChange(next.join() || 'variant');
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || !search.trim() || !found.length) return;
    event.preventDefault();
    toggle(found[0]);
    setSearch('');
  };
  return html`<div class="column-chooser">
    <input
      class="field"
      type="search"
      placeholder="Find a field"
      aria-label="Find a field to group by"
      value=${search}
      onInput=${(event) => setSearch(event.target.value)}
      onKeyDown=${press}
    />
    <div class="column-list" role="group" aria-label="Group by">
      ${found.map(
        (key) => html`<label class="menu-item" key=${key}>
          <input type="checkbox" checked=${keys.includes(key)} onChange=${() => toggle(key)} />
          ${titleOf(key)}
        </label>`,
      )}
      ${!found.length && html`<p class="menu-title">No field that differs contains this.</p>`}
    </div>
    <p class="menu-title">Config fields that differ among these runs. Several make a group of each combination.</p>
  </div>`;
}
