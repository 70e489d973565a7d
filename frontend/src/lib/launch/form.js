/** The state of the launch form: what is sent, what it is called, and the command that sends the same. */
import { changesBetween, getAt, knobDifferences, setAt, spell } from './layers.js';
import { belowBase, belowVariant, laidOver, merge } from './merge.js';
import { isRecord } from './schema.js';
import { lookup } from '../lookup.js';

/** @typedef {import('./layers.js').Fields} Fields */
/** @typedef {Fields & {name: string}} Variant */
/**
 * @typedef {{name: string, base: Fields, variants: Variant[], seeds: string,
 *   sweep?: import('./sweep.js').Sweep}} Form
 */

export const LARGEST_SEED = 2 ** 31 - 1;
const MAX_SEEDS = 100;
/** Code points in the name of an experiment, a fork or a variant. */
export const MAX_IN_NAME = 200;

/**
 * Seeds from text: single ones and ranges, `0,1,2` or `0-2, 7`.
 * @param {string} text @returns {{seeds: number[], error: string}}
 */
export function parseSeeds(text) {
  /** @type {number[]} */
  const seeds = [];
  for (const range of text.split(/[\s,;]+/).filter(Boolean)) {
    const match = range.match(/^(\d+)(?:(?:-|\.\.)(\d+))?$/);
    if (!match)
      return {
        seeds: [],
        error: `“${range}” is not a seed: enter whole numbers such as 0,1,2 or a range such as 0-4`,
      };
    const [from, to] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (to > LARGEST_SEED) return { seeds: [], error: `${to} is too large: the largest seed is ${LARGEST_SEED}` };
    if (to < from) return { seeds: [], error: `“${range}” starts above its end` };
    if (to - from >= MAX_SEEDS) return { seeds: [], error: `“${range}” holds more than ${MAX_SEEDS} seeds` };
    for (let seed = from; seed <= to; seed += 1) if (!seeds.includes(seed)) seeds.push(seed);
  }
  return { seeds, error: seeds.length ? '' : 'Enter at least one seed' };
}

/** A name that no other variant has: `dapo`, `dapo 2`, ... @param {string} stem @param {Variant[]} variants */
export function freeName(stem, variants) {
  const taken = new Set(variants.map(({ name }) => name));
  if (!taken.has(stem)) return stem;
  let n = 2;
  while (taken.has(`${stem} ${n}`)) n += 1;
  return `${stem} ${n}`;
}

/** The name of an experiment that was given none. @param {Variant[]} variants */
export const defaultName = (variants) =>
  shortened(
    (variants.length > 4
      ? `${variants
          .slice(0, 3)
          .map(({ name }) => name)
          .join(' vs ')} and ${variants.length - 3} more`
      : variants.map(({ name }) => name).join(' vs ')) || 'experiment',
  );

const shortened = (/** @type {string} */ name) =>
  [...name].length > MAX_IN_NAME ? `${[...name].slice(0, MAX_IN_NAME - 1).join('')}…` : name;

/** The body of POST /experiments. @param {Form} form */
export const bodyOf = ({ name, base, variants, seeds, sweep }) => ({
  name: name.trim() || defaultName(variants),
  base,
  variants,
  seeds: parseSeeds(seeds).seeds,
  ...(sweep?.knobs.length ? { sweep } : {}),
});

/** @typedef {{path: string, body: object}} Request to POST below /api/v1 */

/**
 * What launching sends: one experiment, or one fork for each variant and seed with what it changes of its parent.
 * @param {Form} form
 * @param {(Fields | undefined)[]} fulls full config of each variant
 * @param {{run: Api.RunItem, step: number} | null} fork
 * @param {boolean} [insist] launch even if a check found reference answers that are graded wrong
 * @returns {Request[]}
 */
export function requestsOf(form, fulls, fork, insist = false) {
  const insisting = insist ? { insist } : {};
  if (!fork) return [{ path: '/experiments', body: { ...bodyOf(form), ...insisting } }];
  const { seeds } = parseSeeds(form.seeds);
  const isOne = seeds.length * form.variants.length === 1;
  const named = isOne && form.name.trim() ? { name: form.name.trim() } : {};
  return form.variants.flatMap((_, i) =>
    seeds.map((seed) => ({
      path: `/runs/${fork.run.id}/fork`,
      body: {
        step: fork.step,
        ...named,
        ...insisting,
        changes: changesBetween(fork.run.config ?? {}, { ...fulls[i], seed }),
      },
    })),
  );
}

/**
 * What *Check first* sends for one variant.
 * @param {Form} form
 * @param {number} index of the variant
 * @param {Fields | undefined} full config of the variant
 * @param {{run: Api.RunItem, step: number} | null} fork
 * @returns {Request}
 */
export function checkRequestOf({ base, variants, seeds }, index, full, fork) {
  const seed = parseSeeds(seeds).seeds[0] ?? 0;
  if (!fork) return { path: '/experiments/check', body: { base, variant: variants[index], seed } };
  const changes = changesBetween(fork.run.config ?? {}, { ...full, seed });
  return { path: `/runs/${fork.run.id}/check`, body: { step: fork.step, changes } };
}

/** @param {string} text for a POSIX shell */
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command that sends the same. @param {string} origin @param {Request} request */
export const commandOf = (origin, { path, body }) =>
  [
    `curl -X POST ${origin}/api/v1${path}`,
    '-H "Authorization: Bearer $GRPOLAB_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body, null, 2))}`,
  ].join(' \\\n  ');

const IN_BASE = ['policy', 'problems', 'steps', 'evaluation', 'checkpointing', 'recording', 'stop_rules', 'resources'];

/**
 * A form that launches a run's config again: model, problems and budget go to the base, the method to one variant.
 * @param {import('./merge.js').Catalog} catalog
 * @param {Fields} config
 * @param {{variant?: string, seed?: number, experiment?: string}} run
 * @returns {Form}
 */
export function formFromConfig(catalog, config, { variant, seed = config.seed ?? 0, experiment = '' }) {
  const shared = Object.fromEntries(
    IN_BASE.filter((key) => Object.hasOwn(config, key)).map((key) => [key, lookup(config, key)]),
  );
  const base = changesBetween(belowBase(catalog, shared), shared);
  const preset = config.preset ?? '';
  const below = belowVariant(catalog, base, { preset });
  const { seed: _, ...fields } = config;
  const changes = changesBetween(below, { ...below, ...fields });
  return {
    name: experiment,
    base,
    seeds: String(seed),
    variants: [{ name: variant || preset || 'variant', ...(preset ? { preset } : {}), ...changes }],
  };
}

/**
 * A run's config as that of a fork behind a step: where the run ended there, as many steps again.
 * @param {Fields} config @param {number} step @returns {Fields}
 */
export const beyondFork = (config, step) =>
  config.steps > step ? config : { ...config, steps: step + Math.max(config.steps, 1) };

/**
 * A variant that makes `base` into the config of a recipe.
 * @param {import('./merge.js').Catalog} catalog
 * @param {Fields} base
 * @param {{name: string, config: Fields}} recipe
 * @returns {Variant}
 */
export function variantOfRecipe(catalog, base, { name, config }) {
  const policy = config.policy?.name;
  const ownPolicy = policy && policy !== belowBase(catalog, base).policy.name ? { policy: { name: policy } } : {};
  const start = { ...(config.preset ? { preset: config.preset } : {}), ...ownPolicy };
  const { seed: _, ...fields } = laidOver(catalog, belowVariant(catalog, {}, start), config);
  const below = laidOver(catalog, belowVariant(catalog, base, start), start);
  return { name, ...merge(start, changesBetween(below, fields)) };
}

/**
 * Variants that differ from `full` in one knob each, which is set back to what `plain` has.
 * @param {Variant} variant
 * @param {Fields} full its full config
 * @param {{path: string, before: any}[]} knobs chosen ones; `before` is the plain value
 * @returns {Variant[]}
 */
export const oneKnobOff = (variant, full, knobs) =>
  knobs.map(({ path, before }) => ({
    ...setAt(variant, path, before, full),
    name: `${variant.name} − ${shortName(path)}`,
  }));

/**
 * A ladder from a plain variant to `variant`: each rung adds one more knob to the one below it. The plain variant is
 * left out where the form has it (`isInForm`), and so is a last rung that is the variant itself.
 * @param {Variant} variant
 * @param {{variant: Variant, full: Fields, isInForm: boolean}} plain
 * @param {{path: string, after: any}[]} knobs in the order in which they are added; `after` is the variant's value
 * @param {boolean} isWhole whether these are all knobs in which the two differ
 * @returns {Variant[]}
 */
export function ladder(variant, plain, knobs, isWhole) {
  const rungs = [{ fields: plain.variant, full: plain.full }];
  for (const { path, after } of knobs) {
    const { fields, full } = rungs[rungs.length - 1];
    const name =
      rungs.length > MAX_CHAINED ? `${variant.name} ladder ${rungs.length}` : `${fields.name} + ${shortName(path)}`;
    rungs.push({
      fields: { .../** @type {Variant} */ (setAt(fields, path, after, full)), name },
      full: setAt(full, path, after, full),
    });
  }
  return rungs.slice(plain.isInForm ? 1 : 0, isWhole ? -1 : undefined).map(({ fields }) => fields);
}

/** Knobs that the name of a rung lists; higher ones are numbered. */
const MAX_CHAINED = 6;

/**
 * The last telling part of a path: `surrogate.eps_high` -> `eps_high`, `filters.groups.type` -> `groups`.
 * @param {string} path
 */
export const shortName = (path) =>
  path
    .split('.')
    .filter((segment) => segment !== 'type')
    .at(-1) ?? path;

/** Knobs of the method in which two full configs differ. @param {Fields} plain @param {Fields} full */
export const methodDifferences = (plain, full) =>
  knobDifferences(plain, full).filter(({ path }) => !['preset', 'seed', 'name'].includes(path));

/**
 * A knob's value in a few characters: the member of a union, then what it holds.
 * @param {any} value @returns {string}
 */
export function shortValue(value) {
  if (value === undefined || value === '') return 'none';
  if (Array.isArray(value)) return value.map(shortValue).join(', ') || 'none';
  if (!isRecord(value)) return String(value);
  const { type, name, ...settings } = value;
  const inside = Object.entries(settings).map(([key, inner]) => `${key} ${shortValue(inner)}`);
  const head = type ?? name ?? '';
  return inside.length && head
    ? `${head} (${inside.slice(0, 3).join(', ')}${inside.length > 3 ? ', …' : ''})`
    : head || inside.join(', ') || '{}';
}

/**
 * The field that an error is about, so that it is shown where it can be corrected.
 * @param {string} path @param {Variant} variant @param {Fields} base @returns {'variant'|'base'|'below'}
 */
export function ownerOf(path, variant, base) {
  for (let at = path; at; at = at.slice(0, Math.max(0, at.lastIndexOf('.')))) {
    if (getAt(variant, at) !== undefined) return 'variant';
    if (getAt(base, at) !== undefined) return 'base';
  }
  return 'below';
}

/**
 * Base and variants with some fields changed in some variants: in the base where that changes all of them.
 * @param {Form} form @param {Fields[]} fulls full configs of the variants
 * @param {number[]} indexes @param {{path: string, value: any}[]} changes
 * @returns {{base: Form['base'], variants: Form['variants']}}
 */
export function withChanges({ base, variants }, fulls, indexes, changes) {
  const isShared = indexes.length === variants.length;
  const changed = (/** @type {Fields} */ fields, /** @type {typeof changes} */ fieldChanges, /** @type {number} */ i) =>
    fieldChanges.reduce((layer, { path, value }) => setAt(layer, path, value, fulls[i]), fields);
  return {
    base: isShared ? changed(base, changes, 0) : base,
    variants: variants.map((variant, i) => {
      const variantChanges = changes.filter(({ path }) => !isShared || getAt(variant, path) !== undefined);
      return indexes.includes(i) ? /** @type {typeof variant} */ (changed(variant, variantChanges, i)) : variant;
    }),
  };
}

/** Key of a request, equal for equal content. @param {unknown} value */
export const contentKey = (value) => spell(value);
