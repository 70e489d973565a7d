/** The variants of an experiment as cards, with their methods, changes, and formulas on request. */
import { html, useState } from '../../dom.js';
import { findMethodDifferences, shortenPath, formatShortValue } from '../../lib/launch/form.js';
import { groupByFamily } from '../../lib/launch/offers.js';
import { Icon, IconButton } from '../shared/icons.js';
import { Formula } from '../shared/formula.js';
import { ChangedKnobs } from './knobs.js';
import { OfferMenu } from './offer_menu.js';
import { Ablation } from './ablation.js';

/** @typedef {import('../../lib/launch/offers.js').Offer} Offer */

const QUICK_PRESETS = ['grpo', 'dapo', 'dr_grpo'];

/**
 * Ways to add a variant.
 * @param {{presets: Offer[], recipes: Offer[], onPreset: (preset: Offer) => void, onRecipe: (recipe:
 *   Offer) => void}} props
 */
export function AddVariant({ presets, recipes, onPreset, onRecipe }) {
  const quick = presets.filter(({ name }) => QUICK_PRESETS.includes(name));
  return html`<div class="toolbar">
    ${quick.map(
      (preset) => html`<button
        type="button"
        class="button button-small"
        key=${preset.name}
        title=${preset.note}
        onClick=${() => onPreset(preset)}
      >
        <${Icon} name="plus" size=${12} /> ${preset.title}
      </button>`,
    )}
    <${OfferMenu} label="Preset" offers=${presets} onChoose=${onPreset} />
    ${recipes.length > 0 && html`<${OfferMenu} label="Recipe" offers=${recipes} onChoose=${onRecipe} />`}
  </div>`;
}

/**
 * @typedef {import('../../lib/launch/form.js').Variant} Variant
 * @typedef {import('../../lib/launch/layers.js').Fields} Fields
 * @param {{variant: Variant, index: number, knobs: import('./knobs.js').KnobProps, presets: Offer[],
 *   verdict: import('./validation.js').Verdict, plainVariants: import('./ablation.js').Plain[], start: Fields,
 *   onChange: (variant: Variant) => void, onSettings: () => void, onDuplicate: () => void, onRemove: () => void,
 *   onAdd: (variants: Variant[]) => void}} props
 */
export function VariantCard({
  variant,
  index,
  knobs,
  presets,
  verdict,
  plainVariants,
  start,
  onChange,
  onSettings,
  onDuplicate,
  onRemove,
  onAdd,
}) {
  const [ablation, setAblation] = useState(false);
  const preset = presets.find(({ name }) => name === (variant.preset ?? ''));
  return html`<article
    class=${knobs.errors.length ? 'card variant is-wrong' : 'card variant'}
    aria-label=${`Variant ${variant.name}`}
  >
    <header class="card-head variant-head">
      <input
        class="field variant-name"
        aria-label=${`Name of variant ${index + 1}`}
        value=${variant.name}
        onInput=${(event) => onChange({ ...variant, name: event.target.value })}
      />
      <${PresetSelect}
        value=${variant.preset ?? ''}
        presets=${presets}
        index=${index}
        onChange=${(name) => onChange(withPreset(variant, name))}
      />
      ${preset?.source && html`<span class="faint variant-source">${preset.source}</span>`}
      <span class="variant-actions">
        <button type="button" class="button-quiet" onClick=${onSettings} title="Settings of this variant alone">
          Settings
        </button>
        <button
          type="button"
          class="button-quiet"
          onClick=${() => setAblation(true)}
          title="Add variants that differ from this one in a single knob, or lead up to it knob by knob"
        >
          Ablations
        </button>
        <${IconButton} icon="copy" label=${`Duplicate ${variant.name}`} title="Duplicate" onClick=${onDuplicate} />
        <${IconButton} icon="cross" label=${`Remove ${variant.name}`} title="Remove" onClick=${onRemove} />
      </span>
    </header>
    <${PresetSummary} preset=${preset} start=${start} below=${knobs.below} />
    <${ChangedKnobs} ...${knobs} />
    <details class="more variant-objective">
      <summary>Objective and notes</summary>
      ${preset && html`<p class="quiet">${preset.note}</p>`}
      <${Objective} name=${variant.name} verdict=${verdict} />
    </details>
    ${
      ablation &&
      html`<${Ablation}
        variant=${variant}
        fullConfig=${knobs.full}
        plainVariants=${plainVariants}
        onAdd=${onAdd}
        onClose=${() => setAblation(false)}
      />`
    }
  </article>`;
}

/** @param {Variant} variant @param {string} name of a preset, or '' @returns {Variant} */
const withPreset = ({ preset: _, name: variantName, ...variant }, name) => ({
  name: variantName,
  ...variant,
  ...(name && { preset: name }),
});

/** @param {{value: string, presets: Offer[], index: number, onChange: (name: string) => void}} props */
function PresetSelect({ value, presets, index, onChange }) {
  const isListed = presets.some(({ name }) => name === value) || value === '';
  return html`<span class="select">
    <select
      aria-label=${`Preset of variant ${index + 1}`}
      value=${value}
      onChange=${(event) => onChange(event.target.value)}
    >
      <option value="" selected=${value === ''}>
        no preset
      </option>
      ${
        !isListed &&
        html`<option value=${value} selected>
          ${value} (unknown)
        </option>`
      }
      ${groupByFamily(presets).map(
        ([family, members]) => html`<optgroup key=${family} label=${family}>
          ${members.map(
            ({ name, title }) => html`<option key=${name} value=${name} selected=${name === value}>
              ${title}
            </option>`,
          )}
        </optgroup>`,
      )}
    </select>
  </span>`;
}

/**
 * The knobs that the preset sets.
 * @param {{preset: Offer | undefined, start: Fields, below: Fields}} props
 */
function PresetSummary({ preset, start, below }) {
  const sets = preset ? findMethodDifferences(start, below) : [];
  if (!sets.length) return null;
  return html`<p class="variant-about preset-sets">
    <span class="faint">sets</span>${' '}
    ${sets.map(
      ({ path, after }) => html`<span key=${path} title=${path}>
        <code>${shortenPath(path)}</code> ${formatShortValue(after)}
      </span>`,
    )}
  </p>`;
}

/**
 * The objective, which is greyed while the config has errors.
 * @param {{name: string, verdict: import('./validation.js').Verdict}} props
 */
function Objective({ name, verdict: { valid, checking, errors } }) {
  return html`<aside
    class=${checking || errors.length ? 'formula is-stale' : 'formula'}
    aria-label=${`Objective of ${name}`}
  >
    ${
      valid
        ? html`<${Formula} valid=${{ ...valid, warnings: [] }} />`
        : html`<p class="faint">
            ${errors.length ? 'Fix the errors to see the objective.' : 'Loading…'}
          </p>`
    }
  </aside>`;
}
