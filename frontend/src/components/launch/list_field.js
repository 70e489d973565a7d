/** A list in the form whose items are members of a union. */
import { html, useId, useState } from '../../dom.js';
import { plural } from '../../lib/text/format.js';
import {
  makeDefault,
  listFields,
  isRecord,
  listMemberNames,
  makeMember,
  findShape,
  readTag,
} from '../../lib/launch/schema.js';
import { spell } from '../../lib/launch/layers.js';
import { IconButton } from '../shared/icons.js';
import { Errors, Reset, Sentence } from './row.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('./row.js').Field} Field */
/** @typedef {import('./row.js').Layer} Layer */
/**
 * @typedef {import('./row.js').FieldProps & {FormField: (props: any) => any}} ListProps
 *   `FormField`: the component that shows a field of an item
 */

/**
 * A list of union members that can be added, changed and removed.
 * @param {ListProps & {titles?: Map<string, string>, bare?: boolean, isSingle?: boolean, children?: any}} props
 *   `isSingle`: a new item replaces the existing one; `children`: more ways to add an item
 */
export function ListField({
  field,
  value,
  layer,
  label,
  FormField,
  titles = new Map(),
  bare = false,
  isSingle = false,
  children,
}) {
  const id = useId();
  const items = Array.isArray(value) ? value : [];
  const node = field.node.items;
  const names = listMemberNames(layer.root, node);
  const setItems = (/** @type {object[]} */ next) => layer.onChange(field.path, next);
  const add = (event) => {
    const item = event.target.value && makeMember(layer.root, node, event.target.value);
    if (item) setItems(isSingle ? [item] : [...items, item]);
    event.target.value = '';
  };
  return html`<fieldset
    class=${bare ? 'form-list is-bare' : layer.isOwn(field.path) ? 'form-part form-list is-own' : 'form-part form-list'}
    data-path=${field.path}
  >
    <legend class=${bare ? 'visually-hidden' : ''} title=${field.path}>
      ${label} <${Reset} field=${field} layer=${layer} />
    </legend>
    ${
      !bare &&
      field.node.description &&
      html`<p class="form-help">
        <${Sentence} text=${field.node.description} />
      </p>`
    }
    ${items.map(
      (item, i) => html`<${ListItem}
        key=${i}
        item=${item}
        path=${`${field.path}.${i}`}
        node=${node}
        layer=${layer}
        FormField=${FormField}
        titles=${titles}
        alone=${items.length === 1}
        onRemove=${isSingle ? null : () => setItems(items.filter((_, index) => index !== i))}
      />`,
    )}
    <${Errors} errors=${layer.errorsAt(field.path)} id=${`${id}-error`} />
    <div class="form-add">
      <span class="select">
        <select aria-label=${isSingle ? `Replace ${label}` : `Add to ${label}`} onChange=${add}>
          <option value="">${isSingle ? 'Replace …' : 'Add …'}</option>
          ${names.map((name) => html`<option value=${name}>${titles.get(name) ?? name}</option>`)}
        </select>
      </span>
      ${children}
    </div>
  </fieldset>`;
}

/**
 * One item. Fields with changed values are always shown, and the other fields on request.
 * @param {{item: any, path: string, node: Field['node'], layer: Layer, FormField: (props: any) => any,
 *   titles: Map<string, string>, alone: boolean, shownKeys?: string[], onRemove: (() => void) | null}} props
 *   `shownKeys`: fields that are shown in any case
 */
export function ListItem({ item, path, node, layer, FormField, titles, alone, shownKeys = [], onRemove }) {
  const [isOpen, setIsOpen] = useState(false);
  const tag = node.discriminator ? readTag(node) : 'name';
  const name = isRecord(item) ? lookup(item, tag) : undefined;
  const itemLayer = { ...layer, onReset: undefined, isOwn: () => false, item };
  const fields = listFields(layer.root, node, item, path);
  const shownFields = fields.filter(
    (field) =>
      isOpen ||
      field.required ||
      shownKeys.includes(field.key) ||
      (field.key === 'weight' && !alone) ||
      layer.errorsAt(field.path).length ||
      spell(lookup(item, field.key)) !== spell(makeDefault(layer.root, field.node)),
  );
  return html`<div class="form-item">
    <div class="form-item-head">
      <strong>${titles.get(name) ?? name ?? '?'}</strong>
      <span class="spacer"></span>
      ${
        fields.length > shownFields.length || isOpen
          ? html`<button type="button" class="button-quiet" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>
            ${isOpen ? 'fewer fields' : plural(fields.length - shownFields.length, 'more field')}
          </button>`
          : null
      }
      ${
        onRemove &&
        html`<${IconButton} icon="cross" size=${12} label=${`Remove ${name} (${path})`} onClick=${onRemove} />`
      }
    </div>
    <${Errors}
      errors=${layer.errorsAt(path).concat(node.discriminator ? layer.errorsAt(`${path}.${tag}`) : [])}
      id=${`error-${path}`}
    />
    <p class="form-help">
      <${Sentence} text=${findShape(layer.root, node, item)?.description ?? ''} />
    </p>
    ${
      shownFields.length > 0 &&
      html`<div class="form-grid">
        ${shownFields.map(
          (field) => html`<${FormField}
          key=${field.path}
          field=${field}
          value=${lookup(item, field.key)}
          layer=${itemLayer} />`,
        )}
      </div>`
    }
  </div>`;
}
