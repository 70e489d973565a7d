/**
 * The config that a launch would run, computed on the page so that fields respond immediately. The server merges again
 * for checks and launches (backend/config/merge.py), and a test compares the results.
 */
import { lookup } from '../lookup.js';
import { complete, isRecord } from './schema.js';

/** @typedef {import('./layers.js').Fields} Fields */
/**
 * @typedef {{schema: import('./schema.js').Node, defaults: Fields, profiles: {name: string, profile: Fields}[],
 *   presets: {name: string, config: Fields}[]}} Catalog
 */

/**
 * Returns a layer merged over another one. Mappings merge deeply, while lists and unions of another `type` are
 * replaced.
 * @param {Fields} below @param {Fields} above @returns {Fields}
 */
export function merge(below, above) {
  const mergedEntries = Object.entries(above ?? {}).map(([key, value]) => {
    const valueBelow = lookup(below, key);
    return [
      key,
      isRecord(valueBelow) && isRecord(value) && isSameMember(valueBelow, value) ? merge(valueBelow, value) : value,
    ];
  });
  return { ...below, ...Object.fromEntries(mergedEntries) };
}

/**
 * Returns whether two values merge. A part of a union without a `type` merges into any value below it.
 * @param {Fields} valueBelow @param {Fields} value
 */
const isSameMember = (valueBelow, value) => value.type === undefined || value.type === valueBelow.type;

/**
 * Returns the fields below a variant before schema defaults: defaults, profile of the policy, preset and base.
 * @param {Catalog} catalog @param {Fields} base @param {Fields} variant @returns {Fields}
 */
export function mergeFieldsBelow(catalog, base, variant) {
  const policy = variant.policy?.name ?? base.policy?.name ?? catalog.defaults.policy?.name;
  const preset = variant.preset || base.preset || '';
  const changes = catalog.presets.find(({ name }) => name === preset)?.config ?? {};
  const mergedConfig = [findProfile(catalog, policy), changes, base].reduce(merge, catalog.defaults);
  return { ...withCorrection(withFewerMinibatches(mergedConfig, changes, base, variant), base, variant), preset };
}

/**
 * Returns the profile of a policy: its own, or that of the nameless "any other model".
 * @param {Catalog} catalog @param {string} policy
 */
const findProfile = ({ profiles }, policy) =>
  (profiles.find(({ name }) => name === policy) ?? profiles.find(({ name }) => name === ''))?.profile ?? {};

/**
 * Returns the fields with a preset's number of minibatches limited to the prompts of a step, unless the base sets it.
 * @param {Fields} mergedConfig @param {Fields} changes of the preset @param {Fields} base @param {Fields} variant
 */
function withFewerMinibatches(mergedConfig, changes, base, variant) {
  const minibatches = changes.updates?.minibatches;
  const prompts = merge(mergedConfig, variant).sampling?.prompts_per_step;
  const isChosen = !isRecord(mergedConfig.updates) || lookup(base.updates, 'minibatches') !== undefined;
  const isTooMany = Number.isInteger(prompts) && prompts > 0 && prompts < minibatches;
  return isTooMany && !isChosen ? merge(mergedConfig, { updates: { minibatches: prompts } }) : mergedConfig;
}

/**
 * Returns the fields with token_tis if a separate engine samples, unless base or variant sets a correction.
 * @param {Fields} mergedConfig @param {Fields} base @param {Fields} variant
 */
function withCorrection(mergedConfig, base, variant) {
  const isChosen = [base, variant].some(({ objective }) => lookup(objective, 'correction') !== undefined);
  const { sampling, objective } = merge(mergedConfig, variant);
  const isOffPolicy = (sampling?.engine?.type ?? 'local') !== 'local' || sampling?.ahead > 0;
  const isOpen = objective?.correction?.type === 'none' && objective?.ratio?.old !== 'sampler';
  return !isChosen && isOffPolicy && isOpen
    ? merge(mergedConfig, { objective: { correction: { type: 'token_tis' } } })
    : mergedConfig;
}

/**
 * Returns the fields below the base: defaults and the policy's profile.
 * @param {Catalog} catalog @param {Fields} base
 */
export function mergeBelowBase(catalog, base) {
  const policy = base.policy?.name ?? catalog.defaults.policy?.name;
  return layOver(catalog, catalog.defaults, findProfile(catalog, policy));
}

/** Returns the fields below a variant. @param {Catalog} catalog @param {Fields} base @param {Fields} variant */
export const mergeBelowVariant = (catalog, base, variant) =>
  complete(catalog.schema, catalog.schema, mergeFieldsBelow(catalog, base, variant));

/** Returns the fields that a variant itself sets. Its preset belongs to the fields below. @param {Fields} variant */
export const dropNames = ({ name: _name, preset: _preset, ...fields }) => fields;

/**
 * Returns the full config of a layer over another.
 * @param {Catalog} catalog @param {Fields} below @param {Fields} fields
 */
export const layOver = (catalog, below, fields) => complete(catalog.schema, catalog.schema, merge(below, fields));
