/** The button next to a field that adds its knob to the sweep, or the knob's values in the sweep. */
import { html } from '../../dom.js';
import { makeKnob } from '../../lib/launch/sweep.js';
import { Icon } from '../shared/icons.js';

/** @param {{field: import('./row.js').Field, value: any, layer: import('./row.js').Layer}} props */
export function SweepKnob({ field, value, layer }) {
  const knob = layer.onSweep && makeKnob(layer.root, field, value);
  if (!knob) return null;
  const swept = layer.sweptAt?.(knob.path);
  if (swept !== undefined)
    return html`<span class="form-swept" title=${`Swept over ${swept}`}>
      swept
    </span>`;
  return html`<button
    type="button"
    class="form-reset form-sweep"
    title="Sweep: try several values"
    aria-label=${`Sweep ${field.path}`}
    onClick=${() => layer.onSweep?.(knob.path, knob.values)}
  >
    <${Icon} name="plus" size=${12} />
  </button>`;
}
