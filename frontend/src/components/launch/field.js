/** Form fields created from the JSON Schema, with one component for each kind of node. */
import { html, useId, useState } from '../../dom.js';
import {
  listFields,
  isRecord,
  listMemberNames,
  findMember,
  readTyped,
  readTag,
  writeTyped,
} from '../../lib/launch/schema.js';
import { spell } from '../../lib/launch/layers.js';
import { meansSeveral } from '../../lib/launch/sweep.js';
import { ChoicesField } from './choices_field.js';
import { DatasetField } from './dataset.js';
import { ListField } from './list_field.js';
import { Name } from './name.js';
import { PassRatesField } from './pass_rates.js';
import { Differs, Errors, Reset, Row, Sentence, makeAriaProps } from './row.js';
import { SuitesField } from './suites_field.js';
import { SweepKnob } from './sweep_knob.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('./row.js').Layer} Layer */
/** @typedef {import('./row.js').Field} Field */
/** @typedef {import('./row.js').FieldProps} FieldProps */

const MAX_OPTIONS = 24;

/** @param {{field: Field, value: any, layer: Layer, label?: string}} props */
export function FormField({ field, value, layer, label = field.key }) {
  const KindField = KIND_FIELDS[field.kind] ?? TextField;
  return html`<${KindField}
    key=${field.path}
    field=${field}
    value=${value}
    layer=${layer}
    label=${label}
    FormField=${FormField}
  />`;
}

/**
 * Component of each kind of field. All other kinds are text fields.
 * @type {Partial<Record<import('../../lib/launch/schema.js').Kind, (props: any) => any>>}
 */
const KIND_FIELDS = {
  union: UnionField,
  section: SectionField,
  list: ListField,
  sections: SuitesField,
  choices: ChoicesField,
  tuple: TupleField,
  boolean: CheckField,
  choice: ChoiceField,
  dataset: DatasetField,
  pass_rates: PassRatesField,
};

/** @param {FieldProps} props */
function TextField({ field, value, layer, label }) {
  const id = useId();
  const [typedText, setTypedText] = useState(/** @type {string | null} */ (null));
  const isParted = isRecord(value) || Array.isArray(value);
  const paths = [field.path, ...Object.keys(isParted ? value : {}).map((key) => `${field.path}.${key}`)];
  const errors = paths.flatMap((path) => layer.errorsAt(path));
  const takesSeveral = field.kind === 'number' && layer.onSweep;
  const isSeveral = takesSeveral && typedText !== null && meansSeveral(typedText);
  const isTyped = typedText !== null && (isSeveral || spell(readTyped(field.node, typedText)) === spell(value));
  const shownText = isTyped ? typedText : writeTyped(value);
  const change = (event) => {
    setTypedText(event.target.value);
    if (takesSeveral && meansSeveral(event.target.value)) return;
    layer.onChange(field.path, readTyped(field.node, event.target.value));
  };
  const leave = (event) => {
    if (!isSeveral) return;
    setTypedText(null);
    layer.onSweep?.(field.path, event.target.value);
  };
  const isLong = field.kind === 'record' || (field.node.maxLength ?? 0) > 1000;
  const inputProps = {
    id,
    class: 'field',
    value: shownText,
    onInput: change,
    onChange: leave,
    spellcheck: false,
    autocomplete: 'off',
    ...makeAriaProps(id, errors),
  };
  const row = { field, layer: { ...layer, errorsAt: () => errors }, label, id, value };
  return html`<${Row} ...${row}>
    ${isSeveral && html`<p class="form-help">Press Enter to sweep these values.</p>`}
    ${
      isLong
        ? html`<textarea rows="2" ...${inputProps} placeholder=${field.kind === 'record' ? '{}' : ''}></textarea>`
        : html`<input
          type="text"
          inputmode=${field.kind === 'number' ? 'decimal' : undefined}
          placeholder=${field.required ? 'required' : ''}
          ...${inputProps}
        />`
    }
  <//>`;
}

/** @param {FieldProps} props */
function ChoiceField({ field, value, layer, label }) {
  const id = useId();
  const errors = layer.errorsAt(field.path);
  /** @type {(string | number)[]} */
  const options = field.node.enum;
  const change = (event) =>
    layer.onChange(field.path, options.find((option) => String(option) === event.target.value) ?? event.target.value);
  const isLong = options.length > MAX_OPTIONS;
  return html`<${Row} field=${field} layer=${layer} label=${label} id=${id} value=${value}>
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
            ...${makeAriaProps(id, errors)}
          />
          <datalist id=${`${id}-list`}>
            ${options.map((option) => html`<option value=${option}></option>`)}
          </datalist>
        `
        : html`<span class="select">
          <select id=${id} value=${String(value)} onChange=${change} ...${makeAriaProps(id, errors)}>
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

/** @param {FieldProps} props */
function CheckField({ field, value, layer, label }) {
  const id = useId();
  const errors = layer.errorsAt(field.path);
  return html`<div
    class=${layer.isOwn(field.path) ? 'form-field form-check is-own' : 'form-field form-check'}
    data-path=${field.path}
  >
    <div class="form-label">
      <label class="tick">
        <input
          type="checkbox"
          id=${id}
          checked=${value === true}
          onChange=${(event) => layer.onChange(field.path, event.target.checked)}
          ...${makeAriaProps(id, errors)}
        />
      </label>
      <${Name} id=${id} field=${field} label=${label} />
      <${Reset} field=${field} layer=${layer} />
      <${SweepKnob} field=${field} value=${value} layer=${layer} />
    </div>
    <${Differs} field=${field} layer=${layer} />
    <p class="form-help" id=${`${id}-help`}>
      <${Sentence} text=${field.node.description ?? ''} />
    </p>
    <${Errors} errors=${errors} id=${`${id}-error`} />
  </div>`;
}

/** @param {FieldProps} props */
function TupleField({ field, value, layer, label }) {
  const id = useId();
  const items = Array.isArray(value) ? value : [];
  const errors = [field.path, ...items.map((_, i) => `${field.path}.${i}`)].flatMap((path) => layer.errorsAt(path));
  const change = (/** @type {number} */ index) => (/** @type {Event & {target: HTMLInputElement}} */ event) =>
    layer.onChange(
      field.path,
      items.map((item, i) => (i === index ? readTyped(field.node.prefixItems[i], event.target.value) : item)),
    );
  return html`<${Row} field=${field} layer=${{ ...layer, errorsAt: () => errors }} label=${label} id=${id}>
    <span class="form-tuple">
      ${items.map(
        (item, i) => html`<input
          key=${i}
          class="field"
          id=${i ? undefined : id}
          aria-label=${`${label} ${i + 1}`}
          inputmode="decimal"
          value=${writeTyped(item)}
          onChange=${change(i)}
          ...${makeAriaProps(id, errors)}
        />`,
      )}
    </span>
  <//>`;
}

/**
 * Fields of a section or of a union's member next to each other, with secondary fields on request.
 * @param {{node: Field['node'], value: any, path: string, layer: Layer}} props
 */
function Fields({ node, value, path, layer }) {
  const fields = listFields(layer.root, node, value, path).filter((field) => !layer.isOff?.(field.path));
  const secondary = fields.filter(
    (field) => layer.secondary?.includes(field.path) && !layer.isOwn(field.path) && !layer.errorsAt(field.path).length,
  );
  const show = (/** @type {Field} */ field) =>
    html`<${FormField} key=${field.path} field=${field} value=${lookup(value, field.key)} layer=${layer} />`;
  return html`
    ${
      fields.length > secondary.length &&
      html`<div class="form-grid">${fields.filter((field) => !secondary.includes(field)).map(show)}</div>`
    }
    ${
      secondary.length > 0 &&
      html`<details class="more">
        <summary>${secondary.map(({ key }) => key).join(', ')}</summary>
        <div class="form-grid">${secondary.map(show)}</div>
      </details>`
    }
  `;
}

/** @param {FieldProps} props */
function SectionField({ field, value, layer, label }) {
  return html`<fieldset class="form-part" data-path=${field.path}>
    <legend title=${field.path}>${label}</legend>
    <${Fields} node=${field.node} value=${value} path=${field.path} layer=${layer} />
  </fieldset>`;
}

/** The choice of a union's member, with the member's description and fields. @param {FieldProps} props */
function UnionField({ field, value, layer, label }) {
  const id = useId();
  const tag = readTag(field.node);
  const errors = [...layer.errorsAt(field.path), ...layer.errorsAt(`${field.path}.${tag}`)];
  const names = listMemberNames(layer.root, field.node);
  const member = findMember(layer.root, field.node, lookup(value, tag));
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
        <${SweepKnob} field=${field} value=${value} layer=${layer} />
      </div>
      <span class="select">
        <select id=${id} value=${lookup(value, tag)} onChange=${choose} ...${makeAriaProps(id, errors)}>
          ${names.map(
            (name) => html`<option value=${name} selected=${name === lookup(value, tag)}>
              ${name}
            </option>`,
          )}
        </select>
      </span>
      <p class="form-help" id=${`${id}-help`}>
        <${Sentence} text=${member?.description ?? field.node.description ?? ''} />
      </p>
    </div>
    <${Differs} field=${field} layer=${layer} />
    <${Errors} errors=${errors} id=${`${id}-error`} />
    <${Fields} node=${field.node} value=${value} path=${field.path} layer=${layer} />
  </fieldset>`;
}
