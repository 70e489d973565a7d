/** The state of the launch form: its requests, the names, and the equivalent command. */
import { findChanges, getAt, findKnobDifferences, setAt, spell } from './layers.js';
import { mergeBelowBase, mergeBelowVariant, layOver, merge } from './merge.js';
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
/** Maximum number of code points in the name of an experiment, a fork or a variant. */
export const MAX_IN_NAME = 200;

/**
 * Returns the seeds in a text with single seeds and ranges, such as `0,1,2` or `0-2, 7`.
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

/** Returns a name that no other variant has: `dapo`, `dapo 2`, ... @param {string} stem @param {Variant[]} variants */
export function findFreeName(stem, variants) {
  const existingNames = new Set(variants.map(({ name }) => name));
  if (!existingNames.has(stem)) return stem;
  let number = 2;
  while (existingNames.has(`${stem} ${number}`)) number += 1;
  return `${stem} ${number}`;
}

/** Returns the default name of an experiment. @param {Variant[]} variants */
export const makeDefaultName = (variants) =>
  shortenName(
    (variants.length > 4
      ? `${variants
          .slice(0, 3)
          .map(({ name }) => name)
          .join(' vs ')} and ${variants.length - 3} more`
      : variants.map(({ name }) => name).join(' vs ')) || 'experiment',
  );

const shortenName = (/** @type {string} */ name) =>
  [...name].length > MAX_IN_NAME ? `${[...name].slice(0, MAX_IN_NAME - 1).join('')}…` : name;

/** Returns the body of POST /experiments. @param {Form} form */
export const makeBody = ({ name, base, variants, seeds, sweep }) => ({
  name: name.trim() || makeDefaultName(variants),
  base,
  variants,
  seeds: parseSeeds(seeds).seeds,
  ...(sweep?.knobs.length ? { sweep } : {}),
});

/** @typedef {{path: string, body: object}} Request to POST below /api/v1 */

/**
 * Returns the requests of a launch: one experiment, or a fork with its changes for each variant and seed.
 * @param {Form} form
 * @param {(Fields | undefined)[]} fulls full config of each variant
 * @param {{run: Api.RunItem, step: number} | null} fork
 * @param {boolean} [ignoresCheck] launch even if a check found reference answers that are graded wrong
 * @returns {Request[]}
 */
export function makeRequests(form, fulls, fork, ignoresCheck = false) {
  const ignoreField = ignoresCheck ? { ignore_check: true } : {};
  if (!fork) return [{ path: '/experiments', body: { ...makeBody(form), ...ignoreField } }];
  const { seeds } = parseSeeds(form.seeds);
  const isOne = seeds.length * form.variants.length === 1;
  const nameField = isOne && form.name.trim() ? { name: form.name.trim() } : {};
  return form.variants.flatMap((_, i) =>
    seeds.map((seed) => ({
      path: `/runs/${fork.run.id}/fork`,
      body: {
        step: fork.step,
        ...nameField,
        ...ignoreField,
        changes: findChanges(fork.run.config ?? {}, { ...fulls[i], seed }),
      },
    })),
  );
}

/**
 * Returns the request of *Check first* for one variant.
 * @param {Form} form
 * @param {number} index of the variant
 * @param {Fields | undefined} fullConfig config of the variant
 * @param {{run: Api.RunItem, step: number} | null} fork
 * @returns {Request}
 */
export function makeCheckRequest({ base, variants, seeds }, index, fullConfig, fork) {
  const seed = parseSeeds(seeds).seeds[0] ?? 0;
  if (!fork) return { path: '/experiments/check', body: { base, variant: variants[index], seed } };
  const changes = findChanges(fork.run.config ?? {}, { ...fullConfig, seed });
  return { path: `/runs/${fork.run.id}/check`, body: { step: fork.step, changes } };
}

/** @param {string} text for a POSIX shell */
const quoteText = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Returns the command that sends the same request. @param {string} origin @param {Request} request */
export const makeCommand = (origin, { path, body }) =>
  [
    `curl -X POST ${origin}/api/v1${path}`,
    '-H "Authorization: Bearer $GRPOLAB_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${quoteText(JSON.stringify(body, null, 2))}`,
  ].join(' \\\n  ');

const IN_BASE = ['policy', 'problems', 'steps', 'evaluation', 'checkpointing', 'recording', 'stop_rules', 'resources'];

/**
 * Returns a form to launch a run's config again: model, problems and budget in the base, and the method in one variant.
 * @param {import('./merge.js').Catalog} catalog
 * @param {Fields} config
 * @param {{variant?: string, seed?: number, experiment?: string}} run
 * @returns {Form}
 */
export function makeForm(catalog, config, { variant, seed = config.seed ?? 0, experiment = '' }) {
  const sharedFields = Object.fromEntries(
    IN_BASE.filter((key) => Object.hasOwn(config, key)).map((key) => [key, lookup(config, key)]),
  );
  const base = findChanges(mergeBelowBase(catalog, sharedFields), sharedFields);
  const preset = config.preset ?? '';
  const below = mergeBelowVariant(catalog, base, { preset });
  const { seed: _, ...fields } = config;
  const changes = findChanges(below, { ...below, ...fields });
  return {
    name: experiment,
    base,
    seeds: String(seed),
    variants: [{ name: variant || preset || 'variant', ...(preset ? { preset } : {}), ...changes }],
  };
}

/**
 * Returns a run's config for a fork at a step. If the run ended at that step, the number of steps is doubled.
 * @param {Fields} config @param {number} step @returns {Fields}
 */
export const extendBeyondFork = (config, step) =>
  config.steps > step ? config : { ...config, steps: step + Math.max(config.steps, 1) };

/**
 * Returns a variant that changes `base` into the config of a recipe.
 * @param {import('./merge.js').Catalog} catalog
 * @param {Fields} base
 * @param {{name: string, config: Fields}} recipe
 * @returns {Variant}
 */
export function makeRecipeVariant(catalog, base, { name, config }) {
  const policy = config.policy?.name;
  const policyField =
    policy && policy !== mergeBelowBase(catalog, base).policy.name ? { policy: { name: policy } } : {};
  const start = { ...(config.preset ? { preset: config.preset } : {}), ...policyField };
  const { seed: _, ...fields } = layOver(catalog, mergeBelowVariant(catalog, {}, start), config);
  const below = layOver(catalog, mergeBelowVariant(catalog, base, start), start);
  return { name, ...merge(start, findChanges(below, fields)) };
}

/**
 * Returns variants that each reset one knob of `fullConfig` to its plain value.
 * @param {Variant} variant
 * @param {Fields} fullConfig its full config
 * @param {{path: string, before: any}[]} knobs chosen ones; `before` is the plain value
 * @returns {Variant[]}
 */
export const makeOneKnobOff = (variant, fullConfig, knobs) =>
  knobs.map(({ path, before }) => ({
    ...setAt(variant, path, before, fullConfig),
    name: `${variant.name} − ${shortenPath(path)}`,
  }));

/**
 * Returns a ladder from a plain variant to `variant`, where each rung adds one knob to the previous one. It omits a
 * plain variant that is in the form (`isInForm`), and a last rung that equals the variant.
 * @param {Variant} variant
 * @param {{variant: Variant, full: Fields, isInForm: boolean}} plainVariant
 * @param {{path: string, after: any}[]} knobs in the order in which they are added; `after` is the variant's value
 * @param {boolean} isWhole whether these are all knobs in which the two differ
 * @returns {Variant[]}
 */
export function makeLadder(variant, plainVariant, knobs, isWhole) {
  const rungs = [{ fields: plainVariant.variant, full: plainVariant.full }];
  for (const { path, after } of knobs) {
    const { fields, full } = rungs[rungs.length - 1];
    const name =
      rungs.length > MAX_CHAINED ? `${variant.name} ladder ${rungs.length}` : `${fields.name} + ${shortenPath(path)}`;
    rungs.push({
      fields: { .../** @type {Variant} */ (setAt(fields, path, after, full)), name },
      full: setAt(full, path, after, full),
    });
  }
  return rungs.slice(plainVariant.isInForm ? 1 : 0, isWhole ? -1 : undefined).map(({ fields }) => fields);
}

/** Maximum number of knobs in the name of a rung. Higher rungs are numbered. */
const MAX_CHAINED = 6;

/**
 * Returns the last meaningful part of a path: `surrogate.eps_high` -> `eps_high`, `filters.groups.type` -> `groups`.
 * @param {string} path
 */
export const shortenPath = (path) =>
  path
    .split('.')
    .filter((segment) => segment !== 'type')
    .at(-1) ?? path;

/**
 * Returns the knobs of the method in which two full configs differ.
 * @param {Fields} plainConfig @param {Fields} fullConfig
 */
export const findMethodDifferences = (plainConfig, fullConfig) =>
  findKnobDifferences(plainConfig, fullConfig).filter(({ path }) => !['preset', 'seed', 'name'].includes(path));

/**
 * Returns a knob's value in a few characters: the member of a union, then its fields.
 * @param {any} value @returns {string}
 */
export function formatShortValue(value) {
  if (value === undefined || value === '') return 'none';
  if (Array.isArray(value)) return value.map(formatShortValue).join(', ') || 'none';
  if (!isRecord(value)) return String(value);
  const { type, name, ...settings } = value;
  const inside = Object.entries(settings).map(([key, inner]) => `${key} ${formatShortValue(inner)}`);
  const head = type ?? name ?? '';
  return inside.length && head
    ? `${head} (${inside.slice(0, 3).join(', ')}${inside.length > 3 ? ', …' : ''})`
    : head || inside.join(', ') || '{}';
}

/**
 * Returns the layer in which an error can be corrected.
 * @param {string} path @param {Variant} variant @param {Fields} base @returns {'variant'|'base'|'below'}
 */
export function findOwner(path, variant, base) {
  for (let prefix = path; prefix; prefix = prefix.slice(0, Math.max(0, prefix.lastIndexOf('.')))) {
    if (getAt(variant, prefix) !== undefined) return 'variant';
    if (getAt(base, prefix) !== undefined) return 'base';
  }
  return 'below';
}

/**
 * Returns base and variants with changed fields. A change of all variants is written to the base.
 * @param {Form} form @param {Fields[]} fulls full configs of the variants
 * @param {number[]} indexes @param {{path: string, value: any}[]} changes
 * @returns {{base: Form['base'], variants: Form['variants']}}
 */
export function withChanges({ base, variants }, fulls, indexes, changes) {
  const isShared = indexes.length === variants.length;
  const applyChanges = (
    /** @type {Fields} */ fields,
    /** @type {typeof changes} */ fieldChanges,
    /** @type {number} */ i,
  ) => fieldChanges.reduce((layer, { path, value }) => setAt(layer, path, value, fulls[i]), fields);
  return {
    base: isShared ? applyChanges(base, changes, 0) : base,
    variants: variants.map((variant, i) => {
      const variantChanges = changes.filter(({ path }) => !isShared || getAt(variant, path) !== undefined);
      return indexes.includes(i) ? /** @type {typeof variant} */ (applyChanges(variant, variantChanges, i)) : variant;
    }),
  };
}

/** Returns the key of a request, which is equal for equal content. @param {unknown} value */
export const makeContentKey = (value) => spell(value);
