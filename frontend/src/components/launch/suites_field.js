/** The suites in the form: a list of named sections, and benchmarks that can be added. */
import { html, useId } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { makeSection, resolveNode } from '../../lib/launch/schema.js';
import { ListItem } from './list_field.js';
import { OfferMenu } from './offer_menu.js';
import { Errors, Reset, Sentence } from './row.js';

const SHOWN = ['name', 'problem', 'prompts', 'n'];

/** Returns a name that no suite has yet. @param {string} stem @param {{name?: string}[]} items */
function findFreeName(stem, items) {
  const existingNames = new Set(items.map(({ name }) => name));
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? stem : `${stem}${number}`;
    if (!existingNames.has(name)) return name;
  }
}

/** Named sections that can be added, changed and removed. @param {import('./list_field.js').ListProps} props */
export function SuitesField({ field, value, layer, label, FormField }) {
  const id = useId();
  const items = Array.isArray(value) ? value : [];
  const node = resolveNode(layer.root, field.node.items);
  const recipes = useGet('/suite-recipes').data?.items ?? [];
  const setItems = (/** @type {object[]} */ next) => layer.onChange(field.path, next);
  const add = (/** @type {Record<string, any>} */ suite) =>
    setItems([...items, { ...suite, name: findFreeName(suite.name, items) }]);
  return html`<fieldset
    class=${layer.isOwn(field.path) ? 'form-part form-list is-own' : 'form-part form-list'}
    data-path=${field.path}
  >
    <legend title=${field.path}>
      ${label} <${Reset} field=${field} layer=${layer} />
    </legend>
    <p class="form-help">
      <${Sentence} text=${field.node.description ?? ''} />
    </p>
    ${items.map(
      (item, i) => html`<${ListItem}
        key=${i}
        item=${item}
        path=${`${field.path}.${i}`}
        node=${node}
        layer=${layer}
        FormField=${FormField}
        titles=${new Map()}
        alone
        shownKeys=${SHOWN}
        onRemove=${() => setItems(items.filter((_, index) => index !== i))}
      />`,
    )}
    <${Errors} errors=${layer.errorsAt(field.path)} id=${`${id}-error`} />
    <div class="toolbar">
      ${
        recipes.length > 0 &&
        html`<${OfferMenu}
          label="Benchmarks"
          align="left"
          offers=${recipes}
          onChoose=${(/** @type {Api.Offer} */ { config }) => add(config.suite)}
        />`
      }
      <button type="button" class="button button-small" onClick=${() => add(makeSection(layer.root, node))}>
        Add a suite
      </button>
    </div>
  </fieldset>`;
}
