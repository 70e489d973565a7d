/** Ablations of a variant: reset one knob at a time, or add one knob at a time to a plain variant. */
import { html, useState } from '../../dom.js';
import { makeLadder, findMethodDifferences, makeOneKnobOff, formatShortValue } from '../../lib/launch/form.js';
import { plural } from '../../lib/text/format.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { Segments, Select } from '../shared/marks.js';
import { DataTable } from '../shared/data_table.js';

/** @typedef {import('../../lib/launch/form.js').Variant} Variant */
/** @typedef {import('../../lib/launch/layers.js').Fields} Fields */
/** @typedef {{name: string, full: Fields, variant: Variant, isInForm: boolean}} Plain */
/** @typedef {ReturnType<typeof findMethodDifferences>[number]} Knob */

const KINDS = [
  { value: 'off', label: 'One knob off', title: 'Each variant resets one knob' },
  { value: 'ladder', label: 'Add one at a time', title: 'Each variant adds one more knob to the one before' },
];

/**
 * @param {{variant: Variant, fullConfig: Fields, plainVariants: Plain[], onAdd: (variants: Variant[]) => void,
 *   onClose: () => void}} props
 *   `plainVariants`: configs to compare with, the defaults first; `isInForm`: true for a variant of the form
 */
export function Ablation({ variant, fullConfig, plainVariants, onAdd, onClose }) {
  const [kind, setKind] = useState('off');
  const [plainName, setPlainName] = useState(plainVariants[0].name);
  const [chosenPaths, setChosenPaths] = useState(/** @type {Set<string>} */ (new Set()));
  const [order, setOrder] = useState(/** @type {string[]} */ ([]));
  const isLadder = kind === 'ladder';
  const start = plainVariants.find(({ name }) => name === plainName) ?? plainVariants[0];
  const knobs = sortKnobs(findMethodDifferences(start.full, fullConfig), order);
  const chosenKnobs = knobs.filter(({ path }) => chosenPaths.has(path));
  const newVariants = isLadder
    ? chosenKnobs.length
      ? makeLadder(variant, start, chosenKnobs, chosenKnobs.length === knobs.length)
      : []
    : makeOneKnobOff(variant, fullConfig, chosenKnobs);
  const choose = (/** @type {string} */ next) => {
    setKind(next);
    setChosenPaths(new Set(next === 'ladder' ? knobs.map(({ path }) => path) : []));
  };
  const toggle = (/** @type {string} */ path) =>
    setChosenPaths((old) => {
      const next = new Set(old);
      if (!next.delete(path)) next.add(path);
      return next;
    });
  const move = (/** @type {number} */ from, /** @type {number} */ to) => {
    const paths = knobs.map(({ path }) => path);
    paths.splice(to, 0, ...paths.splice(from, 1));
    setOrder(paths);
  };
  const add = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    onAdd(newVariants);
    onClose();
  };
  return html`<${Dialog} title=${`Ablations of ${variant.name}`} onClose=${onClose} wide>
    <form onSubmit=${add}>
      <p class="quiet">
        ${
          isLadder
            ? `Each variant adds one more of these knobs to the one before, until it equals ${variant.name}.`
            : `Each selected knob adds a copy of ${variant.name} in which only that knob is reset.`
        }
      </p>
      <div class="toolbar ablation-other">
        <${Segments} label="Kind of ablation" value=${kind} options=${KINDS} onChange=${choose} />
        <${Select}
          label=${isLadder ? 'Start from' : 'Reset to the value of'}
          value=${plainName}
          options=${plainVariants.map(({ name }) => name)}
          onChange=${(name) => {
            setPlainName(name);
            setOrder([]);
            const next = findMethodDifferences(
              (plainVariants.find((choice) => choice.name === name) ?? plainVariants[0]).full,
              fullConfig,
            );
            setChosenPaths(new Set(isLadder ? next.map(({ path }) => path) : []));
          }}
        />
      </div>
      ${
        knobs.length
          ? html`<${KnobTable}
            names=${[variant.name, plainName]}
            knobs=${knobs}
            chosenPaths=${chosenPaths}
            onToggle=${toggle}
            onMove=${isLadder ? move : null}
          />`
          : html`<p>No knobs differ.</p>`
      }
      ${
        isLadder &&
        newVariants.length > 0 &&
        html`<ol class="ladder" aria-label="Variants to add">
          ${newVariants.map(({ name }) => html`<li key=${name}>${name}</li>`)}
        </ol>`
      }
      <${DialogButtons} onClose=${onClose} disabled=${!newVariants.length}>
        Add ${plural(newVariants.length, 'variant')}
      <//>
    </form>
  <//>`;
}

/** Returns the knobs in the chosen order, with unnamed knobs last. @param {Knob[]} knobs @param {string[]} order */
const sortKnobs = (knobs, order) => {
  const findRank = (/** @type {Knob} */ { path }) => (order.includes(path) ? order.indexOf(path) : order.length);
  return [...knobs].sort((a, b) => findRank(a) - findRank(b));
};

/**
 * @param {{names: string[], knobs: Knob[], chosenPaths: Set<string>, onToggle: (path: string) => void,
 *   onMove: ((from: number, to: number) => void) | null}} props `names`: those of the variant and of the plain config
 */
function KnobTable({ names, knobs, chosenPaths, onToggle, onMove }) {
  const moveButton = (
    /** @type {number} */ i,
    /** @type {number} */ to,
    /** @type {'up' | 'down'} */ direction,
  ) => html`<button
    type="button"
    class="button-icon"
    aria-label=${`Move ${knobs[i].path} ${direction}`}
    disabled=${to < 0 || to >= knobs.length}
    onClick=${() => onMove?.(i, to)}
  >
    <${Icon} name=${direction} size=${12} />
  </button>`;
  return html`<${DataTable}
    name="Knobs"
    kind="table ablation"
    heads=${[{ title: html`<span class="visually-hidden">Chosen</span>` }, 'knob', ...names, onMove && 'order']}
  >
    <tbody>
      ${knobs.map(
        ({ path, before, after }, i) => html`<tr key=${path}>
          <td>
            <label class="tick">
              <input
                type="checkbox"
                aria-label=${path}
                checked=${chosenPaths.has(path)}
                onChange=${() => onToggle(path)}
              />
            </label>
          </td>
          <td>
            <code>${path}</code>
          </td>
          <td>${formatShortValue(after)}</td>
          <td>${formatShortValue(before)}</td>
          ${onMove && html`<td class="ladder-order">${moveButton(i, i - 1, 'up')}${moveButton(i, i + 1, 'down')}</td>`}
        </tr>`,
      )}
    </tbody>
  <//>`;
}
