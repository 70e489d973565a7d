/** Fields of a form made from the JSON Schema: one component for each kind of node, and the sentence beside each. */
import { html, useId, useState } from '../../dom.js';
import { plural } from '../../lib/text/format.js';
import {
  defaultOf,
  fieldsOf,
  isRecord,
  memberNames,
  memberOf,
  newMember,
  rangeText,
  readTyped,
  shapeOf,
  tagOf,
  writeTyped,
} from '../../lib/launch/schema.js';
import { spell } from '../../lib/launch/layers.js';
import { DatasetField } from './dataset.js';
import { Name } from './name.js';
import { Icon } from '../shared/icons.js';

/**
 * What all fields of one layer share.
 * @typedef {{root: object, isOwn: (path: string) => boolean, errorsAt: (path: string) => string[],
 *   onChange: (path: string, value: any) => void, onReset?: (path: string) => void, belowAt: (path: string) => any,
 *   secondary?: string[], item?: any}} Layer `secondary`: paths of fields that are shown on request only; `item`:
 *   the item of a list whose fields these are
 * @typedef {import('../../lib/launch/schema.js').Field} Field
 */

const MOST_OPTIONS = 24;

/** @param {{field: Field, value: any, layer: Layer, label?: string}} props */
export function FormField({ field, value, layer, label = field.key }) {
  const Part =
    {
      union: UnionField,
      section: SectionField,
      list: ListField,
      tuple: TupleField,
      boolean: CheckField,
      choice: ChoiceField,
      dataset: DatasetField,
    }[field.kind] ?? TextField;
  return html`<${Part} key=${field.path} field=${field} value=${value} layer=${layer} label=${label} />`;
}

/** A sentence of the schema; what stands between backticks is code. */
export function Sentence({ text }) {
  return text.split('`').map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));
}

/** Label, field, sentence, range and errors of a single value; a `wide` one takes a line of its own. */
export function Row({ field, layer, label, id, wide = false, children }) {
  const errors = layer.errorsAt(field.path);
  return html`<div
    class=${`form-field${layer.isOwn(field.path) ? ' is-own' : ''}${wide ? ' is-wide' : ''}`}
    data-path=${field.path}
  >
    <div class="form-label">
      <${Name} id=${id} field=${field} label=${label} />
      <${Reset} field=${field} layer=${layer} />
    </div>
    ${children}
    <p class="form-help" id=${`${id}-help`}>
      <${Sentence} text=${field.node.description ?? ''} /> <span class="form-range">${rangeText(field.node)}</span>
    </p>
    <${Errors} errors=${errors} id=${`${id}-error`} />
  </div>`;
}

/** Takes a field back to what the layer below says. */
export function Reset({ field, layer }) {
  if (!layer.onReset || !layer.isOwn(field.path)) return null;
  const below = layer.belowAt(field.path);
  const title = `Back to ${typeof below === 'object' ? spell(below) : (below ?? 'nothing')}`;
  return html`<button
    type="button"
    class="form-reset"
    title=${title}
    aria-label=${`${title}: ${field.path}`}
    onClick=${() => layer.onReset(field.path)}
  >
    <${Icon} name="refresh" size=${12} />
  </button>`;
}

export const Errors = ({ errors, id }) =>
  errors.length > 0 &&
  html`<ul class="form-errors" id=${id} role="alert">
    ${errors.map((message) => html`<li>${message}</li>`)}
  </ul>`;

const described = (id, errors) => ({
  'aria-describedby': errors.length ? `${id}-error ${id}-help` : `${id}-help`,
  'aria-invalid': errors.length ? 'true' : undefined,
});

function TextField({ field, value, layer, label }) {
  const id = useId();
  const [typed, setTyped] = useState(null);
  const paths = [field.path, ...Object.keys(isRecord(value) ? value : {}).map((key) => `${field.path}.${key}`)];
  const errors = paths.flatMap((path) => layer.errorsAt(path));
  const shown = typed !== null && spell(readTyped(field.node, typed)) === spell(value) ? typed : writeTyped(value);
  const change = (event) => {
    setTyped(event.target.value);
    layer.onChange(field.path, readTyped(field.node, event.target.value));
  };
  const isLong = field.kind === 'record' || (field.node.maxLength ?? 0) > 1000;
  const shared = {
    id,
    class: 'field',
    value: shown,
    onInput: change,
    spellcheck: false,
    autocomplete: 'off',
    ...described(id, errors),
  };
  return html`<${Row} field=${field} layer=${{ ...layer, errorsAt: () => errors }} label=${label} id=${id}>
    ${
      isLong
        ? html`<textarea rows="2" ...${shared} placeholder=${field.kind === 'record' ? '{}' : ''}></textarea>`
        : html`<input
          type="text"
          inputmode=${field.kind === 'number' ? 'decimal' : undefined}
          placeholder=${field.required ? 'required' : ''}
          ...${shared}
        />`
    }
  <//>`;
}

function ChoiceField({ field, value, layer, label }) {
  const id = useId();
  const errors = layer.errorsAt(field.path);
  const options = field.node.enum;
  const change = (event) =>
    layer.onChange(field.path, options.find((option) => String(option) === event.target.value) ?? event.target.value);
  const isLong = options.length > MOST_OPTIONS;
  return html`<${Row} field=${field} layer=${layer} label=${label} id=${id}>
    ${
      isLong
        ? html`
          <input
            id=${id}
            class="field"
            list=${`${id}-list`}
            value=${value ?? ''}
            onInput=${change}
            placeholder="type to search"
            ...${described(id, errors)}
          />
          <datalist id=${`${id}-list`}>
            ${options.map((option) => html`<option value=${option}></option>`)}
          </datalist>
        `
        : html`<span class="select">
          <select id=${id} value=${String(value)} onChange=${change} ...${described(id, errors)}>
            ${options.map(
              (option) => html`<option value=${String(option)} selected=${option === value}>
                ${String(option) || 'none'}
              </option>`,
            )}
          </select>
        </span>`
    }
  <//>`;
}

function CheckField({ field, value, layer, label }) {
  const id = useId();
  const errors = layer.errorsAt(field.path);
  return html`<div
    class=${layer.isOwn(field.path) ? 'form-field form-check is-own' : 'form-field form-check'}
    data-path=${field.path}
  >
    <div class="form-label">
      <input
        type="checkbox"
        id=${id}
        checked=${value === true}
        onChange=${(event) => layer.onChange(field.path, event.target.checked)}
        ...${described(id, errors)}
      />
      <${Name} id=${id} field=${field} label=${label} />
      <${Reset} field=${field} layer=${layer} />
    </div>
    <p class="form-help" id=${`${id}-help`}>
      <${Sentence} text=${field.node.description ?? ''} />
    </p>
    <${Errors} errors=${errors} id=${`${id}-error`} />
  </div>`;
}

function TupleField({ field, value, layer, label }) {
  const id = useId();
  const parts = Array.isArray(value) ? value : [];
  const errors = [field.path, ...parts.map((_, i) => `${field.path}.${i}`)].flatMap((path) => layer.errorsAt(path));
  const change = (at) => (event) =>
    layer.onChange(
      field.path,
      parts.map((part, i) => (i === at ? readTyped(field.node.prefixItems[i], event.target.value) : part)),
    );
  return html`<${Row} field=${field} layer=${{ ...layer, errorsAt: () => errors }} label=${label} id=${id}>
    <span class="form-tuple">
      ${parts.map(
        (part, i) => html`<input
          key=${i}
          class="field"
          id=${i ? undefined : id}
          aria-label=${`${label} ${i + 1}`}
          inputmode="decimal"
          value=${writeTyped(part)}
          onChange=${change(i)}
          ...${described(id, errors)}
        />`,
      )}
    </span>
  <//>`;
}

/** Fields of a section or of a union's member, side by side; secondary ones on request. */
export function Fields({ node, value, path, layer, without = [] }) {
  const fields = fieldsOf(layer.root, node, value, path).filter((field) => !without.includes(field.path));
  const later = fields.filter(
    (field) => layer.secondary?.includes(field.path) && !layer.isOwn(field.path) && !layer.errorsAt(field.path).length,
  );
  const show = (field) =>
    html`<${FormField} key=${field.path} field=${field} value=${value?.[field.key]} layer=${layer} />`;
  return html`
    ${
      fields.length > later.length &&
      html`<div class="form-grid">${fields.filter((field) => !later.includes(field)).map(show)}</div>`
    }
    ${
      later.length > 0 &&
      html`<details class="more">
        <summary>${later.map(({ key }) => key).join(', ')}</summary>
        <div class="form-grid">${later.map(show)}</div>
      </details>`
    }
  `;
}

function SectionField({ field, value, layer, label }) {
  return html`<fieldset class="form-part" data-path=${field.path}>
    <legend title=${field.path}>${label}</legend>
    <${Fields} node=${field.node} value=${value} path=${field.path} layer=${layer} />
  </fieldset>`;
}

/** Which member of a union, what it does, and its own fields. */
function UnionField({ field, value, layer, label }) {
  const id = useId();
  const tag = tagOf(field.node);
  const errors = [...layer.errorsAt(field.path), ...layer.errorsAt(`${field.path}.${tag}`)];
  const names = memberNames(layer.root, field.node);
  const member = memberOf(layer.root, field.node, value?.[tag]);
  const choose = (event) => layer.onChange(field.path, { [tag]: event.target.value });
  return html`<fieldset
    class=${layer.isOwn(field.path) ? 'form-part form-union is-own' : 'form-part form-union'}
    data-path=${field.path}
  >
    <legend class="visually-hidden">${field.path}</legend>
    <div class="form-union-head">
      <div class="form-label">
        <${Name} id=${id} field=${field} label=${label} title=${field.node.description ?? field.path} />
        <${Reset} field=${field} layer=${layer} />
      </div>
      <span class="select">
        <select id=${id} value=${value?.[tag]} onChange=${choose} ...${described(id, errors)}>
          ${names.map(
            (name) => html`<option value=${name} selected=${name === value?.[tag]}>
              ${name}
            </option>`,
          )}
        </select>
      </span>
      <p class="form-help" id=${`${id}-help`}>
        <${Sentence} text=${member?.description ?? field.node.description ?? ''} />
      </p>
    </div>
    <${Errors} errors=${errors} id=${`${id}-error`} />
    <${Fields} node=${field.node} value=${value} path=${field.path} layer=${layer} />
  </fieldset>`;
}

/** Items that are members of a union: add, change, remove. */
export function ListField({ field, value, layer, label, titles = new Map(), bare = false }) {
  const id = useId();
  const items = Array.isArray(value) ? value : [];
  const node = field.node.items;
  const names = memberNames(layer.root, node);
  const put = (next) => layer.onChange(field.path, next);
  const add = (event) => {
    if (event.target.value) put([...items, newMember(layer.root, node, event.target.value)]);
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
        titles=${titles}
        alone=${items.length === 1}
        onRemove=${() => put(items.filter((_, at) => at !== i))}
      />`,
    )}
    <${Errors} errors=${layer.errorsAt(field.path)} id=${`${id}-error`} />
    <span class="select form-add">
      <select aria-label=${`Add to ${label}`} onChange=${add}>
        <option value="">Add …</option>
        ${names.map((name) => html`<option value=${name}>${titles.get(name) ?? name}</option>`)}
      </select>
    </span>
  </fieldset>`;
}

/** One item; its fields beyond the default are shown at once, the rest on request. */
function ListItem({ item, path, node, layer, titles, alone, onRemove }) {
  const [open, setOpen] = useState(false);
  const name = isRecord(item) ? item[tagOf(node)] : undefined;
  const inner = { ...layer, onReset: undefined, isOwn: () => false, item };
  const fields = fieldsOf(layer.root, node, item, path);
  const telling = fields.filter(
    (field) =>
      open ||
      field.required ||
      (field.key === 'weight' && !alone) ||
      layer.errorsAt(field.path).length ||
      spell(item[field.key]) !== spell(defaultOf(layer.root, field.node)),
  );
  return html`<div class="form-item">
    <div class="form-item-head">
      <strong>${titles.get(name) ?? name ?? '?'}</strong>
      <span class="spacer"></span>
      ${
        fields.length > telling.length || open
          ? html`<button type="button" class="button-quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>
            ${open ? 'fewer fields' : plural(fields.length - telling.length, 'more field')}
          </button>`
          : null
      }
      <button type="button" class="button-icon" aria-label=${`Remove ${name} (${path})`} onClick=${onRemove}>
        <${Icon} name="cross" size=${12} />
      </button>
    </div>
    <${Errors}
      errors=${layer.errorsAt(path).concat(layer.errorsAt(`${path}.${tagOf(node)}`))}
      id=${`error-${path}`}
    />
    <p class="form-help">
      <${Sentence} text=${shapeOf(layer.root, node, item)?.description ?? ''} />
    </p>
    ${
      telling.length > 0 &&
      html`<div class="form-grid">
        ${telling.map(
          (field) => html`<${FormField}
          key=${field.path}
          field=${field}
          value=${item?.[field.key]}
          layer=${inner} />`,
        )}
      </div>`
    }
  </div>`;
}
