/** Knobs of one layer: the changed ones, and all others by group or search. */
import { html } from '../../dom.js';
import { findField, isList } from '../../lib/launch/schema.js';
import { isOff, findPaths } from '../../lib/launch/settings.js';
import { getAt, setAt, spell, unsetAt, writes, listWrittenPaths } from '../../lib/launch/layers.js';
import { FormField } from './field.js';
import { Errors } from './row.js';

/**
 * @typedef {import('../../lib/launch/schema.js').Node} Node
 * @typedef {import('../../lib/launch/layers.js').Fields} Fields
 * @typedef {{title: string, fields: string[]}} KnobGroup
 * @typedef {{path: string, message: string}} FieldError
 */

/**
 * Returns the functions with which fields read and write one layer.
 * @param {{root: Node, secondary?: string[], switches?: import('../../lib/launch/settings.js').Switches,
 *   changes: Fields, below: Fields, full: Fields, errors: FieldError[], onChanges: (changes: any) => void,
 *   onSweep?: import('./row.js').Layer['onSweep'], swept?: Map<string, string>,
 *   differsAt?: import('./row.js').Layer['differsAt']}} parts
 * @returns {import('./row.js').Layer}
 */
export const makeLayer = ({
  root,
  secondary,
  switches = {},
  changes,
  below,
  full,
  errors,
  onChanges,
  onSweep,
  swept,
  differsAt,
}) => ({
  root,
  secondary,
  differsAt,
  isOff: (path) => isOff(switches, path, full) && !writes(changes, path),
  isOwn: (path) => writes(changes, path) && spell(getAt(full, path)) !== spell(getAt(below, path)),
  belowAt: (path) => getAt(below, path),
  errorsAt: (path) =>
    errors
      .map((error) => moveToRecord(root, error, full))
      .filter((error) => error.path === path)
      .map(({ message }) => message),
  onChange: (path, value) => onChanges(setAt(changes, path, value, full)),
  onReset: (path) => onChanges(unsetAt(changes, path, below)),
  onSweep,
  sweptAt: (path) => swept?.get(path),
});

/**
 * Moves an error inside a record to the record, which is edited as one text.
 * @param {Node} root
 * @param {FieldError} error
 * @param {Fields} fullConfig
 */
export function moveToRecord(root, error, fullConfig) {
  const segments = error.path.split('.');
  for (let count = segments.length - 1; count > 0; count -= 1) {
    const path = segments.slice(0, count).join('.');
    if (findField(root, path, fullConfig)?.kind === 'record')
      return { path, message: `${segments.slice(count).join('.')}: ${error.message}` };
  }
  return error;
}

/**
 * Returns an error with a plain message if no file is chosen yet, because the service sees only an empty text.
 * @param {Node} root
 * @param {FieldError} error
 * @param {Fields} fullConfig
 */
export const withPlainMessage = (root, error, fullConfig) =>
  findField(root, error.path, fullConfig)?.kind === 'dataset' && getAt(fullConfig, error.path) === ''
    ? { ...error, message: 'choose or upload a file' }
    : error;

/**
 * Returns the path of the field in which an error can be corrected: the list around it, or the union of a tag.
 * @param {Node} root
 * @param {string} path
 * @param {Fields} fullConfig
 */
export function findKnobOfError(root, path, fullConfig) {
  const segments = path.split('.');
  for (let count = 1; count <= segments.length; count += 1) {
    const field = findField(root, segments.slice(0, count).join('.'), fullConfig);
    if (!field)
      return count > 1 ? findField(root, segments.slice(0, count - 1).join('.'), fullConfig)?.path : undefined;
    if (isList(field.kind)) return field.path;
  }
  return path;
}

/** @param {string} outer @param {string} path */
const covers = (outer, path) => path === outer || path.startsWith(`${outer}.`);
/** @param {string[]} paths */
const withoutInner = (paths) => paths.filter((path) => !paths.some((outer) => outer !== path && covers(outer, path)));

/** Returns the paths that this layer writes or that have errors. @param {Parameters<typeof ChangedKnobs>[0]} props */
function choosePaths({ root, groups, changes, below, full, errors, hidden = [], open = [] }) {
  const shownPaths = [...hidden, ...groups.flatMap(({ title, fields }) => (open.includes(title) ? fields : []))];
  const errorPaths = errors.flatMap(({ path }) => findKnobOfError(root, path, full) ?? []);
  const paths = [...new Set([...listWrittenPaths(changes, below), ...errorPaths])].filter(
    (path) => !['name', 'preset'].includes(path),
  );
  return withoutInner(paths).filter((path) => !shownPaths.some((outer) => covers(outer, path)));
}

const formatLabel = (/** @type {string} */ path) => path.replace(/^objective\./, '');

/**
 * @typedef {Parameters<typeof makeLayer>[0] & {groups: KnobGroup[], hidden?: string[]}} KnobProps
 *   `hidden`: paths that are shown elsewhere
 */

/** Returns a function that renders the field at a path. @param {KnobProps} props */
const makeFieldRenderer = (props) => {
  const layer = makeLayer(props);
  return (/** @type {string} */ path) => {
    const field = findField(props.root, path, props.full);
    return (
      field &&
      html`<${FormField}
        key=${path}
        field=${field}
        value=${getAt(props.full, path)}
        layer=${layer}
        label=${formatLabel(path)}
      />`
    );
  };
};

/**
 * The fields that the layer changes or that have errors, except those shown elsewhere and in open groups.
 * @param {KnobProps & {open?: string[]}} props
 */
export function ChangedKnobs(props) {
  const { root, full, errors } = props;
  const paths = choosePaths(props);
  const fieldless = errors.filter(({ path }) => path === 'preset' || !findKnobOfError(root, path, full));
  if (!paths.length && !fieldless.length) return null;
  return html`<div class="knobs">
    <${Errors} errors=${fieldless.map(({ path, message }) => (path ? `${path} ${message}` : message))} id="" />
    <div class="form-grid">${paths.map(makeFieldRenderer(props))}</div>
  </div>`;
}

/** Buttons for the groups of knobs. @param {KnobProps & {open: string[], onOpen: (open: string[]) => void}} props */
export function KnobGroups({ groups, changes, below, open, onOpen }) {
  const changedPaths = listWrittenPaths(changes, below);
  const toggle = (/** @type {string} */ title) =>
    onOpen(open.includes(title) ? open.filter((openTitle) => openTitle !== title) : [...open, title]);
  return html`<div class="knob-groups" role="group" aria-label="Knobs">
    ${groups.map(({ title, fields }) => {
      const changedCount = changedPaths.filter((path) => fields.some((field) => covers(field, path))).length;
      return html`<button
        type="button"
        class="knob-group"
        key=${title}
        aria-pressed=${open.includes(title)}
        onClick=${() => toggle(title)}
      >
        ${title}
        ${
          changedCount > 0 &&
          html`<span class="knob-count" title=${`${changedCount} changed`}>
            ${changedCount}
          </span>`
        }
      </button>`;
    })}
  </div>`;
}

/**
 * The fields of the open groups or, during a search, the matching fields of all groups.
 * @param {KnobProps & {open: string[], search: string}} props
 */
export function KnobPanels({ open, search, ...props }) {
  const { root, full, groups } = props;
  const { isOff: isFieldOff } = makeLayer(props);
  const panels = groups
    .map(({ title, fields }) => {
      const isWhole = search ? title.toLowerCase().includes(search.toLowerCase()) : open.includes(title);
      const paths = isWhole ? fields : search ? findPaths(root, full, fields, search) : [];
      return { title, paths: paths.filter((path) => !isFieldOff?.(path)) };
    })
    .filter(({ paths }) => paths.length);
  if (!panels.length) return search && html`<p class="quiet knobs">No setting matches.</p>`;
  return html`<div class="knob-panels">
    ${panels.map(
      ({ title, paths }) => html`<section class="knob-panel" key=${title} aria-label=${title}>
        <h3>${title}</h3>
        <div class="form-grid">${paths.map(makeFieldRenderer(props))}</div>
      </section>`,
    )}
  </div>`;
}
