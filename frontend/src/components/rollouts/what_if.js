/** What if: the stored batch of a step under other presets, beside the run's own objective. */
import { html, useState } from '../../dom.js';
import { post } from '../../data/api.js';
import { useGet } from '../../data/resource.js';
import { formatValue } from '../../lib/text/format.js';
import { Formula } from '../shared/formula.js';
import { Select } from '../shared/marks.js';

const MOST = 8;

/** @param {{run: string, step: number, group: string}} props */
export function WhatIf({ run, step, group }) {
  const [open, setOpen] = useState(false);
  const presets = useGet(open ? '/presets' : null);
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const [state, setState] = useState(/** @type {{answer?: Api.WhatIf, error?: Error, busy?: boolean}} */ ({}));
  const names = (presets.data?.items ?? []).map(({ name }) => name).filter((name) => !chosen.includes(name));
  const compute = async (/** @type {string[]} */ wanted) => {
    setState({ ...state, busy: true });
    try {
      const variants = wanted.map((preset) => ({ preset, objective: {} }));
      setState({ answer: await post('/rollouts/what-if', { run, step, variants }) });
    } catch (error) {
      setState({ error: /** @type {Error} */ (error) });
    }
  };
  const add = (/** @type {string} */ name) => {
    const wanted = [...chosen, name].slice(-MOST);
    setChosen(wanted);
    compute(wanted);
  };
  return html`<details class="card what-if" onToggle=${(
    /** @type {Event & {currentTarget: HTMLDetailsElement}} */ event,
  ) => setOpen(event.currentTarget.open)}>
    <summary>What if: step ${step} under another objective</summary>
    <div class="toolbar">
      <${Select}
        label="add preset"
        value=""
        options=${[{ value: '', label: 'choose' }, ...names]}
        onChange=${(/** @type {string} */ name) => name && add(name)}
      />
      ${state.busy && html`<span class="quiet" role="status">Computing…</span>`}
      ${state.error && html`<span class="is-warning" role="alert">${state.error.message}</span>`}
    </div>
    ${state.answer && html`<${Answer} answer=${state.answer} group=${group} />`}
  </details>`;
}

/** @param {{answer: Api.WhatIf, group: string}} props */
function Answer({ answer, group }) {
  const { variants, notes, groups, group_size: size } = answer;
  const rows = [
    ...new Set(variants.flatMap(({ terms = {}, metrics = {} }) => [...Object.keys(terms), ...Object.keys(metrics)])),
  ];
  const at = groups.indexOf(group);
  return html`
    ${notes.map((note) => html`<p class="quiet" key=${note}>${note}</p>`)}
    <div class="table-scroll" tabindex="0" role="group" aria-label="Objectives side by side">
      <table class="what-if-table">
        <thead>
          <tr>
            <th></th>
            ${variants.map(({ name }, i) => html`<th key=${i} scope="col">${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          <${Row} label="loss" cells=${variants.map((one) => (one.problem ? one.problem : formatValue(one.loss)))} />
          ${rows.map(
            (name) => html`<${Row}
              key=${name}
              label=${name.includes('/') ? name : `of it: ${name}`}
              cells=${variants.map(({ terms = {}, metrics = {} }) => shown(terms[name] ?? metrics[name]))}
            />`,
          )}
          ${
            at >= 0 &&
            Array.from(
              { length: Math.min(size, 64) },
              (_, i) => html`<${Row}
                key=${i}
                label=${`completion ${i}: advantage · loss · |gradient| · clipped`}
                cells=${variants.map(({ completions = [] }) => ofCompletion(completions[at * size + i]))}
              />`,
            )
          }
        </tbody>
      </table>
    </div>
    ${variants.map(
      (one, i) => html`<details class="more" key=${i}>
        <summary>${one.name}: formula</summary>
        <${Formula} valid=${{ formula: one.formula, formula_mathml: one.formula_mathml, warnings: [] }} />
        ${!one.problem && html`<p>L = ${substituted(one)}</p>`}
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
const shown = (value) => (value === undefined || value === null ? '–' : formatValue(value));

/** @param {Api.WhatIfCompletion | undefined} one */
const ofCompletion = (one) => (one ? [one.advantage, one.loss, one.gradient, one.clipped].map(shown).join(' · ') : '–');

/** The terms of a loss with this batch's numbers. @param {Api.WhatIfVariant} one */
function substituted({ terms = {}, loss }) {
  const parts = Object.entries(terms).map(([name, value]) => `${shown(value)} (${name})`);
  return `${parts.join(' + ')} = ${shown(loss)}`;
}
