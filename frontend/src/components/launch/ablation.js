/** "One knob off": variants that each take back a single knob, to see which of them matters. */
import { html, useState } from '../../dom.js';
import { methodDifferences, oneKnobOff, shortValue } from '../../lib/launch/form.js';
import { plural } from '../../lib/text/format.js';
import { Dialog } from '../shared/overlay.js';
import { Select } from '../shared/marks.js';

/** @typedef {import('../../lib/launch/form.js').Variant} Variant */
/** @typedef {import('../../lib/launch/layers.js').Fields} Fields */

/**
 * @param {{variant: Variant, full: Fields, plain: {name: string, full: Fields}[], onAdd: (variants:
 *   Variant[]) => void, onClose: () => void}} props
 *   `plain`: what to compare with, the defaults first
 */
export function Ablation({ variant, full, plain, onAdd, onClose }) {
  const [other, setOther] = useState(plain[0].name);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const knobs = methodDifferences((plain.find(({ name }) => name === other) ?? plain[0]).full, full);
  const taken = knobs.filter(({ path }) => chosen.has(path));
  const toggle = (/** @type {string} */ path) =>
    setChosen((old) => {
      const next = new Set(old);
      if (!next.delete(path)) next.add(path);
      return next;
    });
  const add = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    onAdd(oneKnobOff(variant, full, taken));
    onClose();
  };
  return html`<${Dialog} title=${`One knob off ${variant.name}`} onClose=${onClose} wide>
    <form onSubmit=${add}>
      <p class="quiet">Each selected knob adds a copy of ${variant.name} in which only that knob is reset.</p>
      <div class="toolbar ablation-other">
        <${Select}
          label="Reset to the value of"
          value=${other}
          options=${plain.map(({ name }) => name)}
          onChange=${(name) => {
            setOther(name);
            setChosen(new Set());
          }}
        />
      </div>
      ${
        knobs.length
          ? html`<div class="table-scroll" tabindex="0" role="group" aria-label="Knobs">
            <table class="table ablation">
              <thead>
                <tr>
                  <th>
                    <span class="visually-hidden">Chosen</span>
                  </th>
                  <th>knob</th>
                  <th>${variant.name}</th>
                  <th>${other}</th>
                </tr>
              </thead>
              <tbody>
                ${knobs.map(
                  ({ path, one, other: now }) => html`<tr key=${path}>
                    <td>
                      <input
                        type="checkbox"
                        aria-label=${path}
                        checked=${chosen.has(path)}
                        onChange=${() => toggle(path)}
                      />
                    </td>
                    <td>
                      <code>${path}</code>
                    </td>
                    <td>${shortValue(now)}</td>
                    <td>${shortValue(one)}</td>
                  </tr>`,
                )}
              </tbody>
            </table>
          </div>`
          : html`<p>No knobs differ.</p>`
      }
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary" disabled=${!taken.length}>
          Add ${plural(taken.length, 'variant')}
        </button>
      </footer>
    </form>
  <//>`;
}
