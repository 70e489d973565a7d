/** Menus that limit the list of runs to one value of a field. */
import { html, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { lookup } from '../../lib/lookup.js';
import { formatCount } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Menu } from '../shared/overlay.js';
import { TypedSearch } from '../shared/typed_search.js';

/** @typedef {{value: string, label: string, runs?: number}} Option */

/**
 * A menu of a few fixed values.
 * @param {{name: string, value: string, options: Option[], anyLabel?: string,
 *   onChange: (value: string) => void}} props `anyLabel`: the name of the choice without a filter
 */
export function Filter({ name, value, options, anyLabel = `any ${name}`, onChange }) {
  const label = options.find((option) => option.value === value)?.label ?? value;
  return html`<${FilterMenu} name=${name} value=${value} label=${label}>
    ${(/** @type {() => void} */ close) => html`<${Choices}
      anyLabel=${anyLabel}
      value=${value}
      options=${options}
      choose=${(/** @type {string} */ choice) => {
        close();
        onChange(choice);
      }}
    />`}
  <//>`;
}

/**
 * A menu of the values of the list's runs, which come from the service, with a search of all values.
 * @param {{field: 'experiment' | 'variant' | 'tag', value: string, label: string,
 *   filter: Record<string, string | undefined>, onChange: (value: string) => void}} props `label` of the chosen value;
 *   `filter`: parameters of the list
 */
export function ValueFilter({ field, value, label, filter, onChange }) {
  return html`<${FilterMenu} name=${field} value=${value} label=${label}>
    ${(/** @type {() => void} */ close) => html`<${StoredChoices}
      field=${field}
      value=${value}
      filter=${filter}
      choose=${(/** @type {string} */ choice) => {
        close();
        onChange(choice);
      }}
    />`}
  <//>`;
}

/** @param {{name: string, value: string, label: string, children: (close: () => void) => any}} props */
const FilterMenu = ({ name, value, label, children }) =>
  html`<${Menu} quiet label=${value ? html`<span class="filter-label">${name}: <b>${label}</b></span>` : name}>
    ${children}
  <//>`;

/**
 * @param {{field: string, value: string, filter: Record<string, string | undefined>,
 *   choose: (value: string) => void}} props
 */
function StoredChoices({ field, value, filter, choose }) {
  const [search, setSearch] = useState('');
  const parameters = { ...filter, [field]: undefined, field, search };
  const values = useLoad(JSON.stringify(parameters), (signal) => get('/run-values', parameters, signal));
  const options = values.data?.items ?? [];
  return html`<div class="column-chooser">
    <${TypedSearch} value="" onChange=${setSearch} placeholder=${`Find ${field}`} autofocus />
    <div class="column-list" aria-busy=${values.loading}>
      <${Choices} anyLabel=${`any ${field}`} value=${value} options=${options} choose=${choose} />
      ${
        !options.length &&
        !values.loading &&
        html`<p class="menu-title">
          ${values.error?.message ?? (search ? 'No match.' : `No run in this list has ${lookup(ARTICLES, field)}.`)}
        </p>`
      }
    </div>
  </div>`;
}

/** @type {Record<string, string>} */
const ARTICLES = { experiment: 'an experiment', variant: 'a variant', tag: 'a tag' };

/** @param {{anyLabel: string, value: string, options: Option[], choose: (value: string) => void}} props */
const Choices = ({ anyLabel, value, options, choose }) => html`
  ${
    value &&
    html`<button class="menu-item faint" onClick=${() => choose('')}>
      ${anyLabel}
    </button>`
  }
  ${options.map(
    (option) => html`<button class="menu-item" key=${option.value} onClick=${() => choose(option.value)}>
      <span class="menu-check">${option.value === value && html`<${Icon} name="check" size=${12} />`}</span>
      <span class="filter-value">${option.label}</span>
      ${option.runs !== undefined && html`<span class="faint">${formatCount(option.runs)}</span>`}
    </button>`,
  )}
`;
