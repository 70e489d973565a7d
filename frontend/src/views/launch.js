/** Launch: a policy, problems, variants and seeds become an experiment. The whole form is stored in the address. */
import { html, useEffect, useMemo, useState } from '../dom.js';
import { get } from '../data/api.js';
import { useQuery } from '../app/router.js';
import { useLoad } from '../data/resource.js';
import { unsentFiles } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { list, number, text } from '../lib/url.js';
import { json } from '../lib/url_json.js';
import { getAt } from '../lib/launch/layers.js';
import { mergeBelowBase, mergeBelowVariant, layOver, dropNames } from '../lib/launch/merge.js';
import {
  MAX_IN_NAME,
  extendBeyondFork,
  makeBody,
  makeContentKey,
  makeDefaultName,
  makeForm,
  parseSeeds,
  makeRequests,
  formatShortValue,
  withChanges,
} from '../lib/launch/form.js';
import { NO_SWEEP, isSweep, listSweepable, withKnob } from '../lib/launch/sweep.js';
import { Loaded, Skeleton, Failure } from '../components/shared/states.js';
import { useVerdicts } from '../components/launch/validation.js';
import { makeLayer, withPlainMessage } from '../components/launch/knobs.js';
import { Variants, findErrors } from '../components/launch/variants.js';
import { PolicyCard, ProblemsCard } from '../components/launch/base_cards.js';
import { EssentialsCard } from '../components/launch/essentials.js';
import { SettingsCard } from '../components/launch/settings.js';
import { useLaunch } from '../components/launch/launching.js';
import { LaunchBox, ResultBox } from '../components/launch/result.js';
import { SweepCard, usePlan } from '../components/launch/sweep.js';
import { CheckFirst, IgnoreCheck, useCheck } from '../components/launch/check_first.js';
import { ForkCard, useFork } from '../components/launch/fork.js';

/** @type {Variant[]} */
const FIRST = [{ name: 'grpo', preset: 'grpo' }];
/** @typedef {import('../lib/launch/form.js').Variant} Variant */
/** @typedef {import('../components/launch/fork.js').Fork} Fork */
/** @typedef {import('../components/launch/validation.js').Verdict} Verdict */
/** @typedef {import('../components/launch/knobs.js').FieldError} FieldError */
/** @typedef {Awaited<ReturnType<typeof loadOffers>>} Offers */
/** @typedef {import('../lib/url.js').Values<typeof SPEC>} Query */

const isVariants = (/** @type {unknown} */ value) =>
  Array.isArray(value) && value.every((item) => item && typeof item.name === 'string');
const SPEC = {
  name: text(),
  base: json({}),
  variants: json(FIRST, isVariants),
  seeds: text('0,1,2'),
  sweep: json(NO_SWEEP, isSweep),
  open: list(),
  find: text(),
  scope: text(),
  from: text(),
  fork: text(),
  step: number(-1),
  check: text(),
};

/**
 * Loads the schema, defaults and offers of the form, which do not change during editing.
 * @param {AbortSignal} signal
 */
async function loadOffers(signal) {
  const [schema, presets, recipes, policies, problems, data] = await Promise.all([
    get('/config-schema', undefined, signal),
    get('/presets', undefined, signal),
    get('/recipes', undefined, signal),
    get('/policies', undefined, signal),
    get('/problems', undefined, signal),
    get('/data-recipes', undefined, signal),
  ]);
  return {
    catalog: {
      schema: schema.schema,
      defaults: schema.defaults,
      profiles: policies.items,
      presets: presets.items,
    },
    groups: schema.groups,
    secondary: schema.secondary,
    switches: schema.switches,
    presets: presets.items,
    recipes: recipes.items,
    policies: policies.items,
    problems: problems.items,
    dataRecipes: data.items,
  };
}

export function View() {
  useTitle('Launch');
  const offers = useLoad('offers', loadOffers);
  return html`<div class="page launch">
    <${Loaded} resource=${offers} skeleton=${html`<${Skeleton} rows=${14} />`}>
      ${(loaded) => html`<${Start} offers=${loaded} />`}
    <//>
  </div>`;
}

/** The form, which first waits for a run's config if it starts with one. @param {{offers: Offers}} props */
function Start({ offers }) {
  const [query, change] = useQuery(SPEC);
  const origin = useLoad(query.from ? `run ${query.from}` : null, (signal) =>
    get(`/runs/${encodeURIComponent(query.from)}`, undefined, signal),
  );
  const fork = useFork(query);
  useEffect(() => {
    if (!query.from || !origin.data || (query.fork && !fork.data)) return;
    const { config, variant, seed, name } = origin.data;
    change({
      ...makeForm(offers.catalog, fork.data ? extendBeyondFork(config ?? {}, fork.data.step) : (config ?? {}), {
        variant,
        seed,
        experiment: query.fork ? '' : `${name} again`,
      }),
      from: '',
    });
  }, [origin.data, fork.data?.step]);
  if (query.from && origin.error) return html`<${Failure} error=${origin.error} retry=${origin.reload} />`;
  if (query.fork && fork.error) return html`<${Failure} error=${fork.error} retry=${fork.reload} />`;
  if (query.from || (query.fork && !fork.data)) return html`<${Skeleton} rows=${14} />`;
  return html`<${LaunchForm} offers=${offers} query=${query} change=${change} fork=${fork.data ?? null} />`;
}

/**
 * Returns the full configs of base and variants, computed on the page so that fields respond immediately. `shared` is
 * the base with the first variant's preset, which has the values of unset fields of all variants.
 * @param {Offers['catalog']} catalog @param {Query['base']} base @param {Variant[]} variants
 */
export function useLayers(catalog, base, variants) {
  return useMemo(() => {
    const below = mergeBelowBase(catalog, base);
    const baseLayer = { below, full: layOver(catalog, below, base) };
    const variantLayers = variants.map((variant) => {
      const fieldsBelow = mergeBelowVariant(catalog, base, variant);
      return { below: fieldsBelow, full: layOver(catalog, fieldsBelow, dropNames(variant)) };
    });
    const [first] = variants;
    const { policy = {} } = /** @type {{policy?: object}} */ (base);
    return {
      base: baseLayer,
      variants: variantLayers,
      shared: first
        ? { below: mergeBelowVariant(catalog, { policy }, { preset: first.preset }), full: variantLayers[0].below }
        : baseLayer,
    };
  }, [catalog, makeContentKey({ base, variants })]);
}

/**
 * Returns the full configs of the server, or those of the page if there is no answer for the current form yet.
 * @param {import('../components/launch/validation.js').Verdict[]} verdicts @param {object[]} fulls
 */
const resolveConfigs = (verdicts, fulls) =>
  verdicts.map(({ checking, valid, errors, problem }, i) =>
    valid && !checking && !problem && !errors.length ? valid.config : fulls[i],
  );

/**
 * Returns the value of each variant at a path, if they differ.
 * @param {Variant[]} variants @param {object[]} fulls @param {string} path
 */
function findDifferences(variants, fulls, path) {
  const values = fulls.map((full) => getAt(full, path));
  if (new Set(values.map(makeContentKey)).size < 2) return '';
  return `differs: ${variants.map(({ name }, i) => `${name} ${formatShortValue(values[i])}`).join(' · ')}`;
}

/** @param {Query} query */
const findNameErrors = ({ name: experimentName, variants }) => {
  const names = variants.map(({ name }) => name.trim());
  const repeatedName = names.find((name, i) => name && names.indexOf(name) !== i);
  const tooLong = [
    ['The name', experimentName.trim()],
    ...variants.map(({ name }, i) => [`The name of variant ${i + 1}`, name]),
  ]
    .map(([whose, name]) => ({ whose, length: [...name].length }))
    .filter(({ length }) => length > MAX_IN_NAME);
  return [
    ...(names.includes('') ? ['Every variant must have a name'] : []),
    ...(repeatedName ? [`Two variants are called “${repeatedName}”`] : []),
    ...tooLong.map(({ whose, length }) => `${whose} has ${length} characters, at most ${MAX_IN_NAME} are possible`),
  ];
};

/**
 * The form. Its first button is disabled, so that the Enter key in a field clicks no button.
 * @param {{offers: Offers, query: Query, change: (changes: object) => void, fork: Fork | null}} props
 */
function LaunchForm({ offers, query, change, fork }) {
  const { catalog } = offers;
  const { base, variants } = query;
  const seeds = parseSeeds(query.seeds);
  const layers = useLayers(catalog, base, variants);
  const verdicts = useVerdicts(base, variants, seeds.seeds[0] ?? 0, fork).map((verdict, i) => ({
    ...verdict,
    errors: verdict.errors.map((error) => withPlainMessage(catalog.schema, error, layers.variants[i].full)),
  }));
  const fulls = layers.variants.map(({ full }) => full);
  const resolvedConfigs = resolveConfigs(verdicts, fulls);
  const check = useCheck(query.check);
  const [ignoresCheck, setIgnoresCheck] = useState(false);
  const requests = makeRequests(query, resolvedConfigs, fork, ignoresCheck);
  const launch = useLaunch(requests, fork);
  const isSwept = !fork && query.sweep.knobs.length > 0 && variants.length > 0 && !seeds.error;
  const planState = usePlan(isSwept ? makeBody(query) : null);
  const sweepProps = {
    swept: new Map(fork ? [] : query.sweep.knobs.map(({ path, values }) => [path, values])),
    onSweep: fork
      ? undefined
      : (/** @type {string} */ path, /** @type {string} */ values) =>
          change({ sweep: withKnob(query.sweep, path, values) }),
  };
  const apply = (/** @type {number[]} */ indexes, /** @type {Api.ConfigChange[]} */ changes) =>
    change(withChanges(query, fulls, indexes, changes));
  const baseProps = {
    root: catalog.schema,
    secondary: offers.secondary,
    switches: offers.switches,
    groups: offers.groups.filter(({ title }) => title !== 'Problems'),
    changes: base,
    ...layers.base,
    errors: findErrors('base', verdicts, variants, base),
    ...sweepProps,
    onChanges: (/** @type {Query['base']} */ newBase) => change({ base: newBase }),
  };
  const layer = makeLayer(baseProps);
  const sharedKnobs = {
    ...baseProps,
    ...layers.shared,
    differsAt: (/** @type {string} */ path) => findDifferences(variants, fulls, path),
  };
  const makeKnobs = (/** @type {number} */ i) => ({
    ...baseProps,
    groups: offers.groups,
    changes: variants[i],
    ...layers.variants[i],
    errors: findErrors('variant', [verdicts[i]], [variants[i]], base),
    onChanges: (/** @type {Variant} */ variant) =>
      change({ variants: variants.map((old, index) => (index === i ? variant : old)) }),
  });
  const showSettings = (/** @type {number} */ i) => {
    change({ scope: String(i) });
    document.getElementById('launch-settings')?.scrollIntoView();
  };

  return html`<form class="launch-form" onSubmit=${(event) => event.preventDefault()} autocomplete="off">
    <button type="submit" disabled hidden></button>
    <div class="page-head">
      <h1>${fork ? 'Fork' : 'Launch'}</h1>
      <input
        class="field launch-name"
        aria-label=${fork ? 'Name of the fork' : 'Name of the experiment'}
        placeholder=${fork ? 'Generated automatically' : makeDefaultName(variants)}
        value=${query.name}
        onInput=${(event) => change({ name: event.target.value })}
      />
      <span class="spacer"></span>
      <a class="button-quiet" href="/launch">
        Start over
      </a>
    </div>
    <div class="launch-columns">
      <div class="launch-main">
        <div class="launch-pair">
          ${
            fork
              ? html`<${ForkCard} fork=${fork} onStep=${(step) => change({ step })} />`
              : html`<${PolicyCard} layer=${layer} fullConfig=${layers.base.full} policies=${offers.policies} />`
          }
          <${ProblemsCard}
            layer=${layer}
            fullConfig=${layers.base.full}
            offers=${offers.problems}
            recipes=${offers.dataRecipes}
            seed=${seeds.seeds[0] ?? 0}
          />
        </div>
        <${Variants}
          offers=${offers}
          query=${query}
          change=${change}
          layers=${layers}
          verdicts=${verdicts}
          makeKnobs=${makeKnobs}
          onSettings=${showSettings}
        />
        <${EssentialsCard}
          layer=${makeLayer(sharedKnobs)}
          fullConfig=${sharedKnobs.full}
          seeds=${query.seeds}
          parsedSeeds=${seeds}
          onSeeds=${(/** @type {string} */ value) => change({ seeds: value })}
        />
        <${SettingsCard}
          names=${variants.map(({ name }) => name)}
          scope=${query.scope}
          sharedKnobs=${sharedKnobs}
          makeKnobs=${makeKnobs}
          open=${query.open ?? []}
          find=${query.find}
          onFind=${(/** @type {string} */ find) => change({ find })}
          onScope=${(/** @type {string} */ scope) => change({ scope })}
          onOpen=${(/** @type {string[]} */ open) => change({ open: open.length ? open : null })}
        />
        ${
          !fork &&
          html`<${SweepCard}
            sweep=${query.sweep}
            planState=${planState}
            offers=${listSweepable(catalog.schema, layers.variants[0]?.full ?? layers.base.full)}
            onChange=${(/** @type {Query['sweep']} */ sweep) => change({ sweep })}
          />`
        }
      </div>
      <div class="launch-side">
        <${LaunchBox}
          form=${query}
          verdicts=${verdicts}
          seeds=${seeds}
          nameErrors=${findNameErrors(query)}
          planState=${planState}
          onApply=${apply}
          ...${launch}
        >
          <${IgnoreCheck} ignoresCheck=${ignoresCheck} check=${check.data} failure=${launch.failure} onIgnore=${setIgnoresCheck} />
          <${CheckFirst}
            form=${query}
            fork=${fork}
            fulls=${resolvedConfigs}
            isBlocked=${unsentFiles.value.length > 0 || verdicts.some(({ errors }) => errors.length > 0)}
            check=${check}
            onCheck=${(/** @type {string} */ id) => change({ check: id })}
            onApply=${(/** @type {Api.ConfigChange} */ mend) => apply([...variants.keys()], [mend])}
          />
        <//>
        ${
          variants.length > 0 &&
          html`<${ResultBox}
            form=${query}
            verdicts=${verdicts}
            fulls=${fulls}
            defaults=${catalog.defaults}
            requests=${requests}
          />`
        }
      </div>
    </div>
  </form>`;
}
