/** The variants of a launch as cards: what each changes, and what all of them share. */
import { html } from '../../dom.js';
import { freeName, ownerOf, variantOfRecipe } from '../../lib/launch/form.js';
import { OWN_PLACE } from './base_cards.js';
import { AddVariant, CommonCard, VariantCard } from './variant.js';

/** @typedef {import('../../lib/launch/form.js').Variant} Variant */
/** @typedef {import('./validation.js').Verdict} Verdict */
/** @typedef {import('./knobs.js').FieldError} FieldError */
/** @typedef {import('./knobs.js').KnobGroup} KnobGroup */
/** @typedef {import('../../views/launch.js').Offers} Offers */
/** @typedef {import('../../views/launch.js').Query} Query */
/** @typedef {ReturnType<typeof import('../../views/launch.js').useLayers>} Layers */

/** Whether a group of fields has a separate place on the page. @param {KnobGroup} group */
export const hasOwnPlace = ({ fields }) => fields.every((path) => OWN_PLACE.includes(path));

/**
 * The variants as cards, and what all of them share.
 * @param {{offers: Offers, query: Query, change: (changes: object) => void, layers: Layers, verdicts: Verdict[],
 *   layerProps: Record<string, any>, baseProps: Record<string, any>}} props
 *   `layerProps`: of every card; `baseProps`: of the card of what variants share
 */
export function Variants({ offers, query, change, layers, verdicts, layerProps, baseProps }) {
  const { base, variants } = query;
  const putVariant = (/** @type {number} */ index) => (/** @type {Variant} */ variant) =>
    change({ variants: variants.map((old, i) => (i === index ? variant : old)) });
  const add = (/** @type {Variant[]} */ added) =>
    change({
      variants: withFreeNames(variants, added),
    });
  const openOf = (/** @type {string | number} */ card) =>
    (query.open ?? []).filter((name) => name.startsWith(`${card}.`)).map((name) => name.slice(`${card}.`.length));
  const setOpen = (/** @type {string | number} */ card) => (/** @type {string[]} */ titles) =>
    change({
      open: emptyAsNull([
        ...(query.open ?? []).filter((name) => !name.startsWith(`${card}.`)),
        ...titles.map((title) => `${card}.${title}`),
      ]),
    });
  const plainFor = (/** @type {number} */ index) => [
    { name: 'the defaults', full: layers.base.full, variant: { name: 'defaults' }, isThere: false },
    ...layers.variants
      .map(({ full }, i) => ({ name: variants[i].name, full, variant: variants[i], isThere: true }))
      .filter((_, i) => i !== index),
  ];

  const ownErrors = baseProps.errors.filter(
    (/** @type {FieldError} */ { path }) => !OWN_PLACE.includes(path.split('.')[0]),
  );
  return html`<section aria-labelledby="launch-variants">
    <div class="launch-section-head">
      <h2 id="launch-variants">
        <span class="launch-number">3</span> Variants
      </h2>
      <${AddVariant}
        presets=${offers.presets}
        recipes=${offers.recipes}
        onPreset=${({ name }) => add([{ name, preset: name }])}
        onRecipe=${(recipe) => add([variantOfRecipe(offers.catalog, base, recipe)])}
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
        ...${layerProps}
        variant=${variant}
        index=${i}
        ...${layers.variants[i]}
        verdict=${verdicts[i]}
        errors=${errorsOf('variant', [verdicts[i]], [variant], base)}
        open=${openOf(i)}
        onOpen=${setOpen(i)}
        start=${layers.base.full}
        plain=${plainFor(i)}
        onChange=${putVariant(i)}
        onDuplicate=${() => add([variant])}
        onRemove=${() => change({ variants: variants.filter((_, at) => at !== i), open: null })}
        onAdd=${add}
      />`,
    )}
    <${CommonCard}
      ...${baseProps}
      groups=${offers.groups.filter((group) => !hasOwnPlace(group))}
      hidden=${OWN_PLACE}
      errors=${ownErrors}
      open=${openOf('all')}
      onOpen=${setOpen('all')}
      variants=${variants.length}
    />
  </section>`;
}

/** More variants, each under a name that no other one has. @param {Variant[]} variants @param {Variant[]} added */
function withFreeNames(variants, added) {
  const all = [...variants];
  for (const variant of added) all.push({ ...variant, name: freeName(variant.name, all) });
  return all;
}

const emptyAsNull = (/** @type {string[]} */ names) => (names.length ? names : null);

/**
 * Errors that are mended in the base, or in a variant; one that stands in neither belongs to every variant it
 * appears in.
 * @param {'base' | 'variant'} owner @param {Verdict[]} verdicts @param {Variant[]} variants @param {Query['base']} base
 * @returns {FieldError[]}
 */
export function errorsOf(owner, verdicts, variants, base) {
  const ownedErrors = verdicts.flatMap(({ errors }, i) =>
    errors.filter(({ path }) => {
      const layer = ownerOf(path, variants[i], base);
      return owner === 'base'
        ? layer === 'base' || (layer === 'below' && OWN_PLACE.includes(path.split('.')[0]))
        : layer === 'variant' || (layer === 'below' && !OWN_PLACE.includes(path.split('.')[0]));
    }),
  );
  return [...new Map(ownedErrors.map((error) => [`${error.path}\n${error.message}`, error])).values()];
}
