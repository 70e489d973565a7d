/** What-if: the loss of a step's stored batch with other presets and knobs, compared with the run's own objective. */
import { html, useEffect, useState } from '../../dom.js';
import { get, post } from '../../data/api.js';
import { useGet, useLoad } from '../../data/resource.js';
import { useQuery } from '../../app/router.js';
import { layOver } from '../../lib/launch/merge.js';
import { formatValue } from '../../lib/text/format.js';
import { list, text } from '../../lib/url.js';
import { ChangedKnobs, KnobGroups, KnobPanels } from '../launch/knobs.js';
import { Substituted } from './substituted.js';
import { Formula } from '../shared/formula.js';
import { Select } from '../shared/marks.js';
import { lookup } from '../../lib/lookup.js';
import { DataTable } from '../shared/data_table.js';

const MAX_CHOSEN = 7;

export const WHAT_IF_SPEC = { what: list([]), knobs: text() };
/** @typedef {import('../../lib/launch/layers.js').Fields} Fields */

/** Returns the changed knobs in the address, or none if the value is invalid. @param {string} knobsText */
function readKnobs(knobsText) {
  try {
    const parsedKnobs = JSON.parse(knobsText || '{}');
    return typeof parsedKnobs === 'object' && parsedKnobs && !Array.isArray(parsedKnobs)
      ? /** @type {Fields} */ (parsedKnobs)
      : {};
  } catch {
    return {};
  }
}

/** @param {{run: string, step: number, group: string}} props */
export function WhatIf({ run, step, group }) {
  const [view, change] = useQuery(WHAT_IF_SPEC);
  const chosenPresets = view.what ?? [];
  const isAsked = chosenPresets.length > 0 || Boolean(view.knobs);
  const [isOpen, setIsOpen] = useState(isAsked);
  const presets = useGet(isOpen ? '/presets' : null);
  const [state, setState] = useState(
    /** @type {{answer?: Api.WhatIf, error?: import('../../data/api.js').ApiError, busy?: boolean}} */ ({}),
  );
  const request = JSON.stringify([chosenPresets, view.knobs]);
  useEffect(() => {
    if (!isOpen || !isAsked) return undefined;
    let current = true;
    setState((old) => ({ answer: old.answer, busy: true }));
    const variants = [
      ...(view.knobs ? [{ preset: '', objective: readKnobs(view.knobs) }] : []),
      ...chosenPresets.slice(0, MAX_CHOSEN).map((preset) => ({ preset, objective: {} })),
    ];
    post('/rollouts/what-if', { run, step, variants }).then(
      (answer) => current && setState({ answer }),
      (error) => current && setState({ error }),
    );
    return () => {
      current = false;
    };
  }, [isOpen, run, step, request]);
  const names = (presets.data?.items ?? []).map(({ name }) => name).filter((name) => !chosenPresets.includes(name));
  const errors = state.error?.errors ?? [];
  return html`<details
    class="card what-if"
    open=${isOpen}
    onToggle=${(/** @type {Event & {currentTarget: HTMLDetailsElement}} */ event) => setIsOpen(event.currentTarget.open)}
  >
    <summary>What if: step ${step} under another objective</summary>
    <div class="toolbar">
      <${Select}
        label="add preset"
        value=""
        options=${[{ value: '', label: 'choose' }, ...names]}
        onChange=${(/** @type {string} */ name) => name && change({ what: [...chosenPresets, name].slice(-MAX_CHOSEN) })}
      />
      ${
        isAsked &&
        html`<button type="button" class="button-quiet" onClick=${() => change({ what: [], knobs: '' })}>Clear</button>`
      }
      ${state.busy && html`<span class="quiet" role="status">Computing…</span>`}
      ${state.error && !errors.length && html`<span class="is-warning" role="alert">${state.error.message}</span>`}
    </div>
    ${
      isOpen &&
      html`<${OwnKnobs}
        run=${run}
        knobsText=${view.knobs}
        errors=${errors}
        onCompute=${(/** @type {string} */ knobs) => change({ knobs })}
        key=${view.knobs}
      />`
    }
    ${state.answer && isAsked && html`<${Answer} answer=${state.answer} group=${group} />`}
  </details>`;
}

/**
 * Knobs of the run's own objective that can be changed, with errors at their fields.
 * @param {{run: string, knobsText: string, errors: {path: string, message: string}[], onCompute: (knobs: string) =>
 *   void}} props
 */
function OwnKnobs({ run, knobsText, errors, onCompute }) {
  const config = useGet('/config-schema');
  const runResource = useLoad(`run ${run}`, (signal) => get(`/runs/${encodeURIComponent(run)}`, undefined, signal));
  const [knobs, setKnobs] = useState(() => readKnobs(knobsText));
  const [groups, setGroups] = useState(/** @type {string[]} */ ([]));
  if (!config.data || !runResource.data) return null;
  const catalog = { schema: config.data.schema, defaults: config.data.defaults, profiles: [], presets: [] };
  const below = runResource.data.config ?? {};
  const variant = Object.keys(knobs).length ? { objective: knobs } : {};
  const knobProps = {
    root: catalog.schema,
    groups: config.data.groups.filter(({ fields }) => fields.every((path) => path.startsWith('objective.'))),
    secondary: config.data.secondary,
    switches: config.data.switches,
    changes: variant,
    below,
    full: layOver(catalog, below, variant),
    errors,
    onChanges: (/** @type {Fields} */ { objective = {} }) => setKnobs(objective),
    open: groups,
    onOpen: setGroups,
    search: '',
  };
  const spellKnobs = (/** @type {Fields} */ fields) => (Object.keys(fields).length ? JSON.stringify(fields) : '');
  const changedText = spellKnobs(knobs);
  return html`<form
    class="what-if-knobs"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onCompute(changedText);
    }}
  >
    <${ChangedKnobs} ...${knobProps} />
    <${KnobGroups} ...${knobProps} />
    <${KnobPanels} ...${knobProps} />
    ${
      changedText !== spellKnobs(readKnobs(knobsText)) &&
      html`<button type="submit" class="button">Compute with these knobs</button>`
    }
  </form>`;
}

/** @param {{answer: Api.WhatIf, group: string}} props */
function Answer({ answer, group }) {
  const { variants, notes, groups, group_size: size } = answer;
  const rows = [
    ...new Set(variants.flatMap(({ terms = {}, metrics = {} }) => [...Object.keys(terms), ...Object.keys(metrics)])),
  ];
  const groupIndex = groups.indexOf(group);
  return html`
    ${notes.map((note) => html`<p class="quiet" key=${note}>${note}</p>`)}
    <${DataTable}
      name="Objectives side by side"
      kind="what-if-table"
      heads=${[{ title: '' }, ...variants.map(({ name }) => ({ title: name }))]}
    >
      <tbody>
        <${Row} label="loss" cells=${variants.map((variant) => (variant.problem ? variant.problem : formatValue(variant.loss)))} />
        ${rows.map(
          (name) => html`<${Row}
            key=${name}
            label=${name.includes('/') ? name : `of it: ${name}`}
            cells=${variants.map(({ terms = {}, metrics = {} }) => formatShown(lookup(terms, name) ?? lookup(metrics, name)))}
          />`,
        )}
        ${
          groupIndex >= 0 &&
          Array.from(
            { length: Math.min(size, 64) },
            (_, i) => html`<${Row}
              key=${i}
              label=${`completion ${i}: advantage · loss · |gradient| · clipped`}
              cells=${variants.map(({ completions = [] }) => readCompletionValues(completions[groupIndex * size + i]))}
            />`,
          )
        }
      </tbody>
    <//>
    ${variants.map(
      (variant, i) => html`<details class="more" key=${i}>
        <summary>${variant.name}: formula</summary>
        <${Formula} valid=${{ formula: variant.formula, formula_mathml: variant.formula_mathml, warnings: [] }} />
        ${!variant.problem && html`<${Substituted} variant=${variant} />`}
      </details>`,
    )}
  `;
}

/** @param {{label: string, cells: string[]}} props */
const Row = ({ label, cells }) => html`<tr>
  <th scope="row">${label}</th>
  ${cells.map((cell, i) => html`<td key=${i} class="number">${cell}</td>`)}
</tr>`;

/** @param {number | string | null | undefined} value */
const formatShown = (value) => (value === undefined || value === null ? '–' : formatValue(value));

/** @param {Api.WhatIfCompletion | undefined} completion */
const readCompletionValues = (completion) =>
  completion
    ? [completion.advantage, completion.loss, completion.gradient, completion.clipped].map(formatShown).join(' · ')
    : '–';
