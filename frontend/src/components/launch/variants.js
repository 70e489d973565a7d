/** The variants of a launch as cards, and the assignment of errors to them. */
import { html } from '../../dom.js';
import { findFreeName, findOwner, makeRecipeVariant } from '../../lib/launch/form.js';
import { SHARED } from './base_cards.js';
import { AddVariant, VariantCard } from './variant.js';

/** @typedef {import('../../lib/launch/form.js').Variant} Variant */
/** @typedef {import('./validation.js').Verdict} Verdict */
/** @typedef {import('./knobs.js').FieldError} FieldError */
/** @typedef {import('../../views/launch.js').Offers} Offers */
/** @typedef {import('../../views/launch.js').Query} Query */
/** @typedef {ReturnType<typeof import('../../views/launch.js').useLayers>} Layers */

/**
 * The variants as cards.
 * @param {{offers: Offers, query: Query, change: (changes: object) => void, layers: Layers, verdicts: Verdict[],
 *   makeKnobs: (index: number) => import('./knobs.js').KnobProps, onSettings: (index: number) => void}} props
 */
export function Variants({ offers, query, change, layers, verdicts, makeKnobs, onSettings }) {
  const { base, variants } = query;
  const add = (/** @type {Variant[]} */ addedVariants) =>
    change({
      variants: withFreeNames(variants, addedVariants),
    });
  const listPlainVariants = (/** @type {number} */ index) => [
    { name: 'the defaults', full: layers.base.full, variant: { name: 'defaults' }, isInForm: false },
    ...layers.variants
      .map(({ full }, i) => ({ name: variants[i].name, full, variant: variants[i], isInForm: true }))
      .filter((_, i) => i !== index),
  ];
  return html`<section aria-labelledby="launch-variants">
    <div class="launch-section-head">
      <h2 id="launch-variants">
        <span class="launch-number">3</span> Variants
      </h2>
      <${AddVariant}
        presets=${offers.presets}
        recipes=${offers.recipes}
        onPreset=${({ name }) => add([{ name, preset: name }])}
        onRecipe=${(recipe) => add([makeRecipeVariant(offers.catalog, base, recipe)])}
      />
    </div>
    ${
      !variants.length &&
      html`<p class="card launch-empty">
        No variants yet. Add a preset above, or two to compare them.
      </p>`
    }
    ${variants.map(
      (variant, i) => html`<${VariantCard}
        key=${i}
        variant=${variant}
        index=${i}
        knobs=${makeKnobs(i)}
        presets=${offers.presets}
        verdict=${verdicts[i]}
        onSettings=${() => onSettings(i)}
        start=${layers.base.full}
        plainVariants=${listPlainVariants(i)}
        onChange=${makeKnobs(i).onChanges}
        onDuplicate=${() => add([variant])}
        onRemove=${() => change({ variants: variants.filter((_, index) => index !== i), scope: '' })}
        onAdd=${add}
      />`,
    )}
  </section>`;
}

/**
 * Returns the variants with the added ones, under unique names.
 * @param {Variant[]} variants @param {Variant[]} addedVariants
 */
function withFreeNames(variants, addedVariants) {
  const all = [...variants];
  for (const variant of addedVariants) all.push({ ...variant, name: findFreeName(variant.name, all) });
  return all;
}

/**
 * Returns the errors to correct in the base, or in a variant. An error of neither is shown in all its variants.
 * @param {'base' | 'variant'} owner @param {Verdict[]} verdicts @param {Variant[]} variants @param {Query['base']} base
 * @returns {FieldError[]}
 */
export function findErrors(owner, verdicts, variants, base) {
  const ownedErrors = verdicts.flatMap(({ errors }, i) =>
    errors.filter(({ path }) => {
      const layer = findOwner(path, variants[i], base);
      return owner === 'base'
        ? layer === 'base' || (layer === 'below' && SHARED.includes(path.split('.')[0]))
        : layer === 'variant' || (layer === 'below' && !SHARED.includes(path.split('.')[0]));
    }),
  );
  return [...new Map(ownedErrors.map((error) => [`${error.path}\n${error.message}`, error])).values()];
}
