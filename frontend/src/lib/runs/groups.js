/**
 * Groups of runs that share a mean: runs of a variant with equal configs except the seed, or with equal values of
 * chosen fields, as in the service (backend/metrics/grouping.py). Pure.
 */
import { formatField, groupDifferences } from './config.js';
import { runTitle } from './fields.js';
import { makeIdentity, parseGrouping, makeLabel } from './grouping.js';

/** @typedef {{variant: string, runs: Api.RunItem[]}} Bundle */
/** @typedef {Bundle & {name: string}} Group `name` is unique */

const MAX_FIELDS = 2;
/** Sections of a config without effect on the policy. Other fields come first in the names of groups. */
const SECONDARY_PATH = /^(checkpointing|evaluation|recording|resources|steps|stop_rules)(\.|$)/;

/**
 * Returns runs as groups, in the order of launching. Groups by variant also separate configs and forks of different
 * steps, because a mean of a fork and its parent would count the parent's steps twice.
 * @param {Api.RunItem[]} runs @param {string} [grouping] keys of grouping.js @returns {Group[]}
 */
export function makeGroups(runs, grouping = 'variant') {
  const keys = parseGrouping(grouping);
  const isByVariant = keys.join() === 'variant';
  /** @type {Map<string, Bundle>} */
  const groups = new Map();
  for (const run of [...runs].sort((a, b) => (a.id < b.id ? -1 : 1))) {
    const key = isByVariant ? JSON.stringify([run.variant, run.config_hash, run.fork_step]) : makeIdentity(run, keys);
    const bundle = groups.get(key) ?? { variant: run.variant ?? '', runs: [] };
    bundle.runs.push(run);
    groups.set(key, bundle);
  }
  return isByVariant ? nameGroups([...groups.values()]) : labelGroups([...groups.values()], keys);
}

/**
 * Returns groups named by their shared values, numbered if two names are equal (the text 8 and the number 8).
 * @param {Bundle[]} groups @param {string[]} keys @returns {Group[]}
 */
function labelGroups(groups, keys) {
  const times = new Map();
  return groups.map((group) => {
    const label = makeLabel(group.runs[0], keys);
    times.set(label, (times.get(label) ?? 0) + 1);
    return { name: times.get(label) > 1 ? `${label} (${times.get(label)})` : label, ...group };
  });
}

/**
 * Returns groups with the shortest names that distinguish those of the same variant.
 * @param {Bundle[]} groups @returns {Group[]}
 */
function nameGroups(groups) {
  /** @type {Map<string, Bundle[]>} */
  const groupsByVariant = new Map();
  for (const group of groups)
    groupsByVariant.set(group.variant, [...(groupsByVariant.get(group.variant) ?? []), group]);
  const names = new Map(
    [...groupsByVariant.values()].flatMap((variantGroups) =>
      makeNamesAmong(variantGroups).map((name, i) => /** @type {const} */ ([variantGroups[i], name])),
    ),
  );
  return groups.map((group) => ({ name: names.get(group) ?? group.variant, ...group }));
}

/** Returns names by the config fields that differ, else by experiment, whose name says nothing about the settings. */
function makeNamesAmong(/** @type {Bundle[]} */ groups) {
  if (groups.length === 1) return [groups[0].variant];
  const [fields, origins] = [describeFields(groups), groups.map(findOrigin)];
  const hashes = groups.map(({ runs: [run] }) => run.config_hash.slice(0, 6));
  const withOrigin = (/** @type {string[]} */ texts) => texts.map((text, i) => text && `${text} · ${origins[i]}`);
  const suffixes = [fields, origins, withOrigin(fields), groups.map(findExperiment), hashes, withOrigin(hashes)].find(
    (texts) => texts.every(Boolean) && new Set(texts).size === groups.length,
  );
  return groups.map(
    ({ variant }, i) => `${variant} · ${suffixes ? suffixes[i] : `${withOrigin(hashes)[i]} · ${i + 1}`}`,
  );
}

/** Returns the origin of a group's runs: the start, or a parent's checkpoint. */
const findOrigin = (/** @type {Bundle} */ { runs: [run] }) =>
  typeof run.fork_step === 'number' ? `fork at ${run.fork_step}` : 'from the start';

/** Returns the experiment of a group, or nothing if its runs belong to several. */
function findExperiment(/** @type {Bundle} */ { runs }) {
  const names = new Set(runs.map(({ experiment_name: name }) => name ?? ''));
  return names.size === 1 ? [...names][0] : '';
}

/** Returns the fields that distinguish the groups, such as `lr 0.001, eps_low 0.2`, if the configs are loaded. */
function describeFields(/** @type {Bundle[]} */ groups) {
  const rows = groupDifferences(
    groups.map(({ variant, runs }) => ({ name: variant, configs: [runs[0].config ?? {}] })),
  );
  const fields = chooseDecidingFields(
    rows.map(({ path, cells }) => ({
      path,
      texts: cells.map(([value]) => `${path.split('.').at(-1)} ${formatField(value)}`),
    })),
  );
  return groups.map((_, i) => fields.map(({ texts }) => texts[i]).join(', '));
}

/**
 * Returns fields in a greedy order: each distinguishes the most remaining groups, and learning settings come first.
 * @param {{path: string, texts: string[]}[]} fields
 */
function chooseDecidingFields(fields) {
  const remainingFields = [...fields].sort(
    (a, b) => Number(SECONDARY_PATH.test(a.path)) - Number(SECONDARY_PATH.test(b.path)),
  );
  /** @type {typeof fields} */
  const chosenFields = [];
  const distinct = (/** @type {typeof fields} */ rows) =>
    new Set((rows[0]?.texts ?? []).map((_, i) => JSON.stringify(rows.map(({ texts }) => texts[i])))).size;
  while (
    remainingFields.length &&
    (chosenFields.length < MAX_FIELDS || distinct(chosenFields) < chosenFields[0].texts.length)
  ) {
    const counts = remainingFields.map((field) => distinct([...chosenFields, field]));
    const bestCount = Math.max(...counts);
    if (chosenFields.length >= MAX_FIELDS && bestCount === distinct(chosenFields)) break;
    chosenFields.push(...remainingFields.splice(counts.indexOf(bestCount), 1));
  }
  return chosenFields;
}

/**
 * Returns titles of single runs: the run's own title, then the suffix that distinguishes its group.
 * @param {Group[]} groups by variant @returns {Map<string, string>}
 */
export const makeRunTitles = (groups) =>
  new Map(
    groups.flatMap(({ name, variant, runs }) => {
      const suffix = name.startsWith(`${variant} · `) ? name.slice(variant.length) : '';
      return runs.map((run) => /** @type {[string, string]} */ ([run.id, `${runTitle(run)}${suffix}`]));
    }),
  );

/**
 * Returns the names in charts: those of runs and groups, and the group of each run with the key `group:<run id>`.
 * @param {Group[]} groups @returns {Map<string, string>}
 */
export function makeRunNames(groups) {
  /** @type {[string, string][]} */
  const pairs = [
    ...groups.map(({ name }) => /** @type {[string, string]} */ ([name, name])),
    ...makeRunTitles(groups),
    ...groups.flatMap(({ name, runs: inside }) =>
      inside.map(({ id }) => /** @type {[string, string]} */ ([`group:${id}`, name])),
    ),
  ];
  return new Map(pairs);
}

/**
 * Returns at most `limit` runs to draw, taken from the groups in turn, so that every group is represented.
 * @param {Group[]} groups @param {number} limit @returns {string[]} ids
 */
export function takeFairShare(groups, limit) {
  const ids = [];
  for (let turn = 0; ids.length < limit; turn += 1) {
    const next = groups.filter(({ runs }) => runs.length > turn).map(({ runs }) => runs[turn].id);
    if (!next.length) return ids;
    ids.push(...next.slice(0, limit - ids.length));
  }
  return ids;
}

/** Returns groups with only their drawn runs. @param {Group[]} groups @param {string[]} drawnIds ids of runs */
export function selectDrawnGroups(groups, drawnIds) {
  const ids = new Set(drawnIds);
  return groups
    .map((group) => ({ ...group, runs: group.runs.filter(({ id }) => ids.has(id)) }))
    .filter(({ runs }) => runs.length > 0);
}

/**
 * Number of seeds from which the 95 % interval of a mean is the more readable band. It covers 2.5 standard deviations
 * to each side for three seeds, more than the seeds themselves, and 0.7 for ten.
 */
export const SEEDS_OF_INTERVAL = 10;

/**
 * Returns the band to draw: the chosen one, else the range of the runs, or the interval if there are many seeds.
 * @param {string} band @param {Group[]} groups
 */
export function chooseBand(band, groups) {
  if (band !== 'auto') return band;
  return Math.min(...groups.map(({ runs }) => runs.length)) >= SEEDS_OF_INTERVAL ? 'ci95' : 'minmax';
}

/** Returns the number of seeds in the bands of some groups: `3`, or `2–5`. @param {Group[]} groups */
export function seedsText(groups) {
  const counts = groups.map(({ runs }) => runs.length);
  const [smallest, largest] = [Math.min(...counts), Math.max(...counts)];
  return smallest === largest ? `${largest}` : `${smallest}–${largest}`;
}

/** Returns the group with a name or with a run. @param {string} nameOrRun @param {Group[]} groups */
export const findGroup = (nameOrRun, groups) =>
  groups.find(({ name, runs }) => name === nameOrRun || runs.some(({ id }) => id === nameOrRun));

/**
 * Returns the key of the baseline's line: a group, or one of its runs if single runs are drawn. The default is the
 * first group. A chosen baseline that no longer exists is kept, so that a page can report it.
 * @param {string} nameOrRun name of a group or id of a run @param {Group[]} groups @param {boolean} isGrouped
 */
export function findBaselineKey(nameOrRun, groups, isGrouped) {
  if (!nameOrRun) return isGrouped && groups.length > 1 ? groups[0].name : '';
  const group = findGroup(nameOrRun, groups);
  if (!group) return nameOrRun;
  return isGrouped ? group.name : group.name === nameOrRun ? group.runs[0].id : nameOrRun;
}
