/** The rollouts of one run: step, prompt and completions. */
import { html, useMemo } from '../../dom.js';
import { getAll } from '../../data/api.js';
import { useQuery } from '../../app/router.js';
import { useGet, useLoad } from '../../data/resource.js';
import { useKeys } from '../../app/keys.js';
import { choice, flag, list, number, text } from '../../lib/url.js';
import {
  CARD_ORDERS,
  chooseGroups,
  FILTERS,
  GROUP_FILTERS,
  GROUP_ORDERS,
  groupFilter,
  findNearestStep,
} from '../../lib/rollouts.js';
import { plural } from '../../lib/text/format.js';
import { CommittedInput } from '../shared/committed_input.js';
import { Empty, Loaded, Skeleton } from '../shared/states.js';
import { Menu } from '../shared/overlay.js';
import { Segments, Select } from '../shared/marks.js';
import { Icon, IconButton } from '../shared/icons.js';
import { CURVES, StepBar } from './steps.js';
import { CountStrip } from './strip.js';
import { PromptColumns } from './columns.js';
import { GroupList, GroupView } from './group.js';
import { COLOURINGS } from '../../lib/text/tokens.js';
import { MismatchOfStep } from './mismatch.js';
import { WhatIf } from './what_if.js';
import { ColourLegend, LossSums, Readout } from './tokens.js';

const COLOUR_NAMES = /** @type {import('../../lib/text/tokens.js').ColourName[]} */ (Object.keys(COLOURINGS));

export const ROLLOUT_SPEC = {
  step: number(null, { min: 0 }),
  prompt: number(1, { min: 1 }),
  group: text(''),
  kind: text('train'),
  sort: choice(Object.keys(GROUP_ORDERS)),
  order: choice(Object.keys(CARD_ORDERS)),
  curve: choice(Object.keys(CURVES)),
  filter: list([]),
  least: number(null),
  colour: choice([...COLOUR_NAMES, 'none']),
  at: text(''),
  beside: list(),
  full: flag(),
};
const MAX_GROUPS = 512;
const COLOURS = [
  ...COLOUR_NAMES.map((value) => ({ value, label: COLOURINGS[value].label })),
  { value: 'none', label: 'plain' },
];
const TRAINING = { value: 'train', label: 'training' };
const HELD_OUT = { value: 'eval', label: 'evaluation', title: 'Held-out prompts, the same at every evaluation' };

/**
 * Returns the kinds of which rollouts were kept: training, the held-out set, then each suite.
 * @param {Api.StepItem[]} items
 */
function listKinds(items) {
  const presentKinds = new Set(items.map(({ kind }) => kind));
  const suites = [...presentKinds].filter((kind) => kind.startsWith('eval/')).sort();
  return [
    ...[TRAINING, HELD_OUT].filter(({ value }) => presentKinds.has(value)),
    ...suites.map((kind) => ({ value: kind, label: kind.slice('eval/'.length), title: 'A suite of the run' })),
  ];
}

/**
 * Returns the steps at which rollouts of a kind were kept, in ascending order.
 * @param {Api.StepItem[]} items @param {string} kind
 */
const listSteps = (items, kind) =>
  [...new Set(items.filter((item) => item.kind === kind).map(({ step }) => step))].sort((a, b) => a - b);

const NONE_HERE = 'This run stored no rollouts. The recording.rollouts setting controls which are stored.';
const NONE_ELSEWHERE = 'The log of this run holds no completions. Importing logs, in the help, says how to add some.';

/**
 * @param {{run: string, live: boolean, foreign: boolean, onset: Api.Steps | null, siblings:
 *   Api.RunItem[]}} props `live`: the run is still
 *   training; `foreign`: it trained in another trainer; `onset`: the steps at which its goal began to fall
 */
export function RolloutBrowser({ run, live, foreign, onset, siblings }) {
  const steps = useGet(
    '/rollouts/steps',
    { run },
    { live: ['points'], concerns: (data) => data.run === run, every: 4000 },
  );
  return html`<${Loaded}
    resource=${steps}
    skeleton=${html`<${Skeleton} rows=${10} />`}
    isEmpty=${({ items }) => !items.length}
    empty=${html`<${Empty} title="No rollouts yet">
      ${live ? 'Rollouts appear after the first step.' : foreign ? NONE_ELSEWHERE : NONE_HERE}
    <//>`}
  >
    ${({ items }) => html`<${Browser} run=${run} items=${items} live=${live} onset=${onset} siblings=${siblings} />`}
  <//>`;
}

/**
 * @typedef {import('../../lib/url.js').Values<typeof ROLLOUT_SPEC>} RolloutView
 * @param {{run: string, items: Api.StepItem[], live: boolean, onset: Api.Steps | null, siblings:
 *   Api.RunItem[]}} props
 */
function Browser({ run, items, live, onset, siblings }) {
  const [view, change] = useQuery(ROLLOUT_SPEC);
  const kinds = useMemo(() => listKinds(items), [items]);
  const kind = kinds.find(({ value }) => value === view.kind)?.value ?? kinds[0].value;
  const steps = useMemo(() => listSteps(items, kind), [items, kind]);
  const step = steps[findNearestStep(steps, view.step ?? (live ? Infinity : (onset?.sick ?? Infinity)))];
  const rollouts = useLoad(
    `${run} ${kind} ${step}`,
    (signal) => getAll('/rollouts', { run, step, kind, limit: 64 }, { limit: MAX_GROUPS, signal }),
    { subject: `${run} ${kind}` },
  );
  const goTo = (/** @type {number} */ next) => change({ step: next, group: '' });
  return html`<div class="rollouts">
    <div class="card rollout-steps">
      <div class="toolbar">
        <${Segments}
          label="Kind"
          value=${kind}
          options=${kinds}
          onChange=${(value) => change({ kind: value, step: steps.length ? step : null, prompt: 1 })}
        />
        ${
          live &&
          html`<button
            type="button"
            class="button-quiet"
            aria-pressed=${view.step === null}
            title="Show new steps as they arrive"
            onClick=${() => change({ step: view.step === null ? step : null })}
          >
            Follow latest
          </button>`
        }
        ${
          view.step !== null &&
          view.step !== step &&
          html`<span class="quiet">
            no rollouts stored for step ${view.step}; showing step ${step}
          </span>`
        }
      </div>
      <${StepBar}
        run=${run}
        steps=${steps}
        step=${step}
        onset=${onset}
        curve=${view.curve}
        onCurve=${(/** @type {string} */ curve) => change({ curve })}
        onStep=${goTo}
      />
      <${CountStrip} run=${run} kind=${kind} step=${step} filter=${view} onStep=${goTo} />
    </div>
    <${Loaded} resource=${rollouts} skeleton=${html`<${Skeleton} rows=${10} />`}>
      ${(groups) => html`<${Step} groups=${groups} steps=${steps} step=${step} view=${view} change=${change} siblings=${siblings} />`}
    <//>
  </div>`;
}

/**
 * @param {{groups: Api.GroupItem[], steps: number[], step: number, view: RolloutView, siblings: Api.RunItem[],
 *   change: (changes: object) => void}} props
 */
function Step({ groups, steps, step, view, siblings, change }) {
  const filter = { filter: view.filter, least: view.least };
  const shownGroups = useMemo(
    () => chooseGroups(groups, filter, view.sort),
    [groups, view.filter.join(), view.least, view.sort],
  );
  const namedIndex = view.group ? shownGroups.findIndex(({ id }) => id === view.group) : -1;
  const groupIndex = namedIndex >= 0 ? namedIndex : Math.min(view.prompt, shownGroups.length) - 1;
  const pick = (/** @type {number} */ index) => {
    if (index >= 0 && index < shownGroups.length) change({ prompt: index + 1, step, group: '', at: '' });
  };
  const goStep = (/** @type {number} */ offset) => {
    const next = steps[steps.indexOf(step) + offset];
    if (next !== undefined) change({ step: next, group: '', at: '' });
  };
  const { run, kind } = groups[0] ?? {};
  const isLossShown = kind === 'train' && ['loss', 'gradient'].includes(view.colour);
  const sums = useGet(isLossShown ? '/rollouts/loss' : null, { run, step });
  useKeys({
    n: { label: 'next prompt', run: () => pick(groupIndex + 1) },
    p: { label: 'previous prompt', run: () => pick(groupIndex - 1) },
    N: { label: 'next step', run: () => goStep(1) },
    P: { label: 'previous step', run: () => goStep(-1) },
    ArrowRight: { label: 'next step', run: () => goStep(1) },
    ArrowLeft: { label: 'previous step', run: () => goStep(-1) },
  });
  return html`
    <div class="toolbar rollout-tools">
      <div class="prompt-pick">
        <${IconButton}
          icon="left"
          label="Previous prompt"
          title="Previous prompt (p)"
          disabled=${groupIndex <= 0}
          onClick=${() => pick(groupIndex - 1)}
        />
        <span>
          prompt ${groupIndex + 1} <span class="faint">of ${shownGroups.length}</span>
        </span>
        <button
          type="button"
          class="button-icon"
          aria-label="Next prompt"
          title="Next prompt (n)"
          disabled=${groupIndex + 1 >= shownGroups.length}
          onClick=${() => pick(groupIndex + 1)}
        >
          <${Icon} name="right" />
        </button>
      </div>
      <${Menu} label=${filterLabel(view)} title="Which completions and groups are shown, and in what order">
        <div class="rollout-menu"><${Filters} view=${view} change=${change} /></div>
      <//>
      <${Select}
        label="colour tokens by"
        value=${view.colour}
        options=${COLOURS}
        onChange=${(colour) => change({ colour })}
      />
      <span class="spacer"></span>
      <button
        type="button"
        class="button"
        aria-pressed=${view.beside !== null}
        title="This prompt at other steps and in other runs, side by side"
        onClick=${() => change({ beside: view.beside ? null : [] })}
      >
        Compare
      </button>
    </div>
    ${
      view.colour !== 'none' &&
      html`<div class="rollout-legend">
        <${Readout} />
        <${ColourLegend} colourBy=${view.colour} />
        ${isLossShown && html`<${LossSums} sums=${sums.data} group=${shownGroups[groupIndex]?.id} />`}
      </div>`
    }
    ${
      shownGroups.length
        ? html`<div class="rollout-columns">
          <${GroupList} groups=${shownGroups} activeIndex=${groupIndex} filter=${filter} onPick=${pick} />
          <div>
          ${
            view.beside
              ? html`<${PromptColumns}
                group=${shownGroups[groupIndex]}
                beside=${view.beside}
                siblings=${siblings}
                order=${view.order}
                by=${view.colour}
                full=${view.full}
                onChange=${change}
              />`
              : html`<${GroupView}
            group=${shownGroups[groupIndex]}
            filter=${filter}
            order=${view.order}
            colourBy=${view.colour}
            tokenAddress=${view.at}
            onPin=${(tokenAddress) => change({ at: tokenAddress, step, prompt: groupIndex + 1 })}
            key=${shownGroups[groupIndex].id}
          />`
          }
          ${
            kind === 'train' &&
            html`<${WhatIf} run=${run} step=${step} group=${shownGroups[groupIndex].id} key=${`${run} ${step}`} />
              <${MismatchOfStep} run=${run} step=${step} key=${`mismatch ${run} ${step}`} />`
          }
          </div>
        </div>`
        : html`<${Empty}
          title=${`None of ${plural(
            groups.reduce((sum, { completions }) => sum + completions.length, 0),
            'completion',
          )} of step ${step} passes the filter`}
          action=${html`<button class="button" onClick=${() => change({ filter: [], least: null })}>
            Show all
          </button>`}
        />`
    }
  `;
}

/** @param {RolloutView} view */
function filterLabel({ filter, least }) {
  const count = filter.length + (least === null ? 0 : 1);
  return count ? `Filter (${count}) and sort` : 'Filter and sort';
}

/** @param {{view: RolloutView, change: (changes: object) => void}} props */
function Filters({ view, change }) {
  const toggle = (/** @type {string} */ name) =>
    change({
      filter: view.filter.includes(name)
        ? view.filter.filter((filterName) => filterName !== name)
        : [...view.filter, name],
      prompt: 1,
    });
  const byGroup = (/** @type {string} */ name) =>
    change({
      filter: [...view.filter.filter((filterName) => FILTERS.includes(filterName)), ...(name ? [name] : [])],
      prompt: 1,
    });
  const changeLeast = (/** @type {string} */ content) =>
    change({ least: content === '' || !Number.isFinite(Number(content)) ? null : Number(content), prompt: 1 });
  return html`
    <div class="segments" role="group" aria-label="Only completions that are">
      ${FILTERS.map(
        (name) => html`<button
          type="button"
          key=${name}
          aria-pressed=${view.filter.includes(name)}
          onClick=${() => toggle(name)}
        >
          ${name}
        </button>`,
      )}
    </div>
    <${Select}
      label="groups"
      value=${groupFilter(view.filter)}
      options=${Object.entries(GROUP_FILTERS).map(([value, label]) => ({ value, label }))}
      onChange=${byGroup}
    />
    <label class="select">
      reward ≥${' '}
      <${CommittedInput} class="field least" inputmode="decimal" value=${view.least ?? ''} onCommit=${changeLeast} />
    </label>
    <${Select}
      label="sort prompts by"
      value=${view.sort}
      options=${Object.entries(GROUP_ORDERS).map(([value, { label }]) => ({ value, label }))}
      onChange=${(/** @type {string} */ sort) => change({ sort, prompt: 1 })}
    />
    <${Select}
      label="sort completions by"
      value=${view.order}
      options=${Object.entries(CARD_ORDERS).map(([value, label]) => ({ value, label }))}
      onChange=${(/** @type {string} */ order) => change({ order })}
    />
  `;
}
