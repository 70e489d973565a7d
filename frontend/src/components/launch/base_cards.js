/** What all variants of an experiment share: policy, problems, seeds, budget. */
import { html, useEffect, useState } from '../../dom.js';
import { post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { fieldAt } from '../../lib/launch/schema.js';
import { getAt } from '../../lib/launch/layers.js';
import { contentKey } from '../../lib/launch/form.js';
import { oneLine } from '../../lib/text/tokens.js';
import { plural } from '../../lib/text/format.js';
import { Fields, FormField } from './field.js';
import { ListField } from './list_field.js';
import { OfferMenu } from './offer_menu.js';
import { Errors, Sentence } from './row.js';
import { lookup } from '../../lib/lookup.js';
import { Heads } from '../shared/data_table.js';

/** @typedef {import('./row.js').Layer} Layer */

/** @typedef {import('../../lib/launch/layers.js').Fields} Full the full config */

/** A field that every config has. @param {Layer} layer @param {Full} full @param {string} path */
const field = (layer, full, path) => /** @type {import('./row.js').Field} */ (fieldAt(layer.root, path, full));

const WEIGHTS = ['adapter', 'dtype', 'quantization', 'revision'];
const PROMPT = ['chat_template', 'system_prompt', 'chat_template_kwargs'];

/** @param {{layer: Layer, full: Full, policies: Api.PolicyOffer[]}} props */
export function PolicyCard({ layer, full, policies }) {
  const name = full.policy?.name;
  const offers = policies.filter((policy) => policy.name);
  const isUnlisted = !offers.some((policy) => policy.name === name);
  const offer = policies.find((policy) => policy.name === (isUnlisted ? '' : name));
  const choose = (event) => layer.onChange('policy.name', event.target.value);
  return html`<section class="card launch-card" aria-labelledby="launch-policy">
    <h2 id="launch-policy">
      <span class="launch-number">1</span> Policy
    </h2>
    <span class="select">
      <select aria-label="Policy" onChange=${choose} value=${isUnlisted ? '' : name}>
        ${offers.map(
          (policy) => html`<option value=${policy.name} selected=${!isUnlisted && policy.name === name}>
            ${policy.title}
          </option>`,
        )}
        <option value="" selected=${isUnlisted}>
          Another model…
        </option>
      </select>
    </span>
    ${
      offer &&
      html`<p class="form-help">
        <${Sentence} text=${offer.note} />
      </p>`
    }
    ${isUnlisted && html`<${FormField} field=${field(layer, full, 'policy.name')} value=${name} layer=${layer} />`}
    <${MoreFields} title="LoRA and precision" fields=${WEIGHTS} layer=${layer} full=${full} />
    <${MoreFields} title="Chat template" fields=${PROMPT} layer=${layer} full=${full} />
  </section>`;
}

/**
 * Further fields of the policy, open if one has an error.
 * @param {{title: string, fields: string[], layer: Layer, full: Full}} props
 */
function MoreFields({ title, fields, layer, full }) {
  const paths = fields.map((key) => `policy.${key}`);
  return html`<details class="more" open=${hasErrors(layer, paths)}>
    <summary>${title}</summary>
    <div class="form-grid">
      ${fields.map(
        (key) => html`<${FormField}
          key=${key}
          field=${field(layer, full, `policy.${key}`)}
          value=${lookup(full.policy, key)}
          layer=${layer}
        />`,
      )}
    </div>
  </details>`;
}

/** @param {Layer} layer @param {string[]} paths */
const hasErrors = (layer, paths) => paths.some((path) => layer.errorsAt(path).length > 0) || undefined;

/** @param {{layer: Layer, full: Full, offers: Api.ProblemKind[], recipes: Api.Offer[], seed: number}} props */
export function ProblemsCard({ layer, full, offers, recipes, seed }) {
  const choose = (/** @type {Api.Offer} */ { config }) => layer.onChange('problems', config.problems);
  return html`<section class="card launch-card" aria-labelledby="launch-problems">
    <h2 id="launch-problems">
      <span class="launch-number">2</span> Problems
    </h2>
    <${ListField}
      field=${field(layer, full, 'problems')}
      value=${full.problems}
      layer=${layer}
      FormField=${FormField}
      label="problems"
      bare
      titles=${new Map(offers.map(({ name, title }) => [name, title]))}
    />
    <${OfferMenu} label="Known datasets" align="left" offers=${recipes} onChoose=${choose} />
    <${Preview} problems=${full.problems} seed=${seed} />
  </section>`;
}

/**
 * A few prompts that the sources really give, with their answers.
 * @param {{problems: object[], seed: number}} props
 */
function Preview({ problems, seed }) {
  const key = useSettled(contentKey({ problems, seed }));
  const preview = useLoad(key, (signal) => post('/problems/preview', JSON.parse(key), { signal }), {
    subject: 'preview',
  });
  const { data, error } = preview;
  if (error) return error.status === 422 ? null : html`<p class="quiet">Preview unavailable: ${error.message}</p>`;
  if (!data) return html`<p class="faint preview-wait">Loading prompts…</p>`;
  return html`<div class="preview">
    ${
      data.items.length > 0 &&
      html`<table class="table">
        <${Heads} of=${['prompt', 'answer']} />
        <tbody>
          ${data.items.map(
            ({ prompt, answer }, i) => html`<tr key=${i}>
              <td>
                <bdi>${oneLine(prompt)}</bdi>
              </td>
              <td>
                <bdi>${answer === null || answer === undefined ? '–' : oneLine(String(answer))}</bdi>
              </td>
            </tr>`,
          )}
        </tbody>
      </table>`
    }
    ${data.note && html`<p class="quiet">${data.note}</p>`}
  </div>`;
}

/** A value that has stood still for a moment. @template T @param {T} value */
function useSettled(value, pause = 300) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pause);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** @param {{text: string, parsed: {seeds: number[], error: string}, onChange: (text: string) => void}} props */
export function SeedsCard({ text, parsed, onChange }) {
  return html`<section class="card launch-card" aria-labelledby="launch-seeds">
    <h2 id="launch-seeds">
      <span class="launch-number">4</span> Seeds
    </h2>
    <input
      class="field"
      aria-label="Seeds"
      value=${text}
      onInput=${(event) => onChange(event.target.value)}
      spellcheck=${false}
      autocomplete="off"
      aria-invalid=${parsed.error ? 'true' : undefined}
      aria-describedby="launch-seeds-help"
    />
    <p class="form-help" id="launch-seeds-help">
      Each variant runs once per seed. List them (<code>0,1,2</code>) or give a range (<code>0-4</code>).${' '}
      ${parsed.error ? '' : `${plural(parsed.seeds.length, 'seed')}.`}
    </p>
    <${Errors} errors=${parsed.error ? [parsed.error] : []} id="launch-seeds-error" />
  </section>`;
}

const FIRST = ['evaluation.every', 'checkpointing.every'];
const PARTS = [
  ['evaluation', 'Evaluation'],
  ['checkpointing', 'Checkpoints'],
  ['recording', 'Recording'],
  ['resources', 'Memory'],
];

/** @param {{layer: Layer, full: Full}} props */
export function BudgetCard({ layer, full }) {
  return html`<section class="card launch-card" aria-labelledby="launch-budget">
    <h2 id="launch-budget">
      <span class="launch-number">5</span> Budget
    </h2>
    <div class="form-grid">
      <${FormField} field=${field(layer, full, 'steps')} value=${full.steps} layer=${layer} />
      ${FIRST.map(
        (path) => html`<${FormField}
          key=${path}
          field=${field(layer, full, path)}
          value=${getAt(full, path)}
          layer=${layer}
          label=${path}
        />`,
      )}
    </div>
    <details class="more">
      <summary>Evaluation, checkpoints, recording, stop rules, memory</summary>
      ${PARTS.map(
        ([path, title]) => html`<section key=${path} class="budget-part">
          <h3>${title}</h3>
          <${Fields}
            node=${field(layer, full, path).node}
            value=${getAt(full, path)}
            path=${path}
            layer=${layer}
            without=${FIRST}
          />
        </section>`,
      )}
      <${ListField}
        field=${field(layer, full, 'stop_rules')}
        value=${full.stop_rules}
        layer=${layer}
        FormField=${FormField}
        label="stop_rules"
      />
    </details>
  </section>`;
}

/** Paths of the base that have a place of their own on the page; the other ones are knobs. */
export const OWN_PLACE = [
  'policy',
  'problems',
  'steps',
  'evaluation',
  'checkpointing',
  'recording',
  'stop_rules',
  'resources',
];
