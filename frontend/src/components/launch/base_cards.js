/** The settings that all variants of an experiment share: the policy and the problems. */
import { html, useState } from '../../dom.js';
import { get, post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { findField, makeMember } from '../../lib/launch/schema.js';
import { makeContentKey } from '../../lib/launch/form.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { FormField } from './field.js';
import { ListField } from './list_field.js';
import { OfferMenu } from './offer_menu.js';
import { Sentence } from './row.js';
import { Upload } from './upload.js';
import { ForOperator } from '../shared/role.js';
import { useSettled } from '../shared/settled.js';
import { lookup } from '../../lib/lookup.js';
import { Heads } from '../shared/data_table.js';

/** @typedef {import('./row.js').Layer} Layer */

/** @typedef {import('../../lib/launch/layers.js').Fields} Full the full config */

/** Returns a field that every config has. @param {Layer} layer @param {Full} fullConfig @param {string} path */
const makeField = (layer, fullConfig, path) =>
  /** @type {import('./row.js').Field} */ (findField(layer.root, path, fullConfig));

const PAUSE_MS = 300;
const WEIGHTS = ['adapter', 'dtype', 'quantization', 'revision'];
const PROMPT = ['chat_template', 'system_prompt', 'chat_template_kwargs'];

/** @param {{layer: Layer, fullConfig: Full, policies: Api.PolicyOffer[]}} props */
export function PolicyCard({ layer, fullConfig, policies }) {
  const name = fullConfig.policy?.name;
  const listedPolicies = policies.filter((policy) => policy.name);
  const isUnlisted = !listedPolicies.some((policy) => policy.name === name);
  const chosenPolicy = policies.find((policy) => policy.name === (isUnlisted ? '' : name));
  const choose = (event) => layer.onChange('policy.name', event.target.value);
  return html`<section class="card launch-card" aria-labelledby="launch-policy">
    <h2 id="launch-policy">
      <span class="launch-number">1</span> Policy
    </h2>
    <span class="select">
      <select aria-label="Policy" onChange=${choose} value=${isUnlisted ? '' : name}>
        ${listedPolicies.map(
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
      chosenPolicy &&
      html`<p class="form-help">
        <${Sentence} text=${chosenPolicy.note} />
      </p>`
    }
    ${isUnlisted && html`<${FormField} field=${makeField(layer, fullConfig, 'policy.name')} value=${name} layer=${layer} />`}
    <${MoreFields} title="LoRA and precision" fields=${WEIGHTS} layer=${layer} fullConfig=${fullConfig} />
    <${MoreFields} title="Chat template" fields=${PROMPT} layer=${layer} fullConfig=${fullConfig} />
  </section>`;
}

/**
 * More fields of the policy, which are open if one has an error.
 * @param {{title: string, fields: string[], layer: Layer, fullConfig: Full}} props
 */
function MoreFields({ title, fields, layer, fullConfig }) {
  const paths = fields.map((key) => `policy.${key}`);
  return html`<details class="more" open=${hasErrors(layer, paths)}>
    <summary>${title}</summary>
    <div class="form-grid">
      ${fields.map(
        (key) => html`<${FormField}
          key=${key}
          field=${makeField(layer, fullConfig, `policy.${key}`)}
          value=${lookup(fullConfig.policy, key)}
          layer=${layer}
        />`,
      )}
    </div>
  </details>`;
}

/** @param {Layer} layer @param {string[]} paths */
const hasErrors = (layer, paths) => paths.some((path) => layer.errorsAt(path).length > 0) || undefined;

/**
 * The problems. A new choice replaces the only problem, unless the user mixes several.
 * @param {{layer: Layer, fullConfig: Full, offers: Api.ProblemKind[], recipes: Api.Offer[], seed: number}} props
 */
export function ProblemsCard({ layer, fullConfig, offers, recipes, seed }) {
  const [wantsMixing, setWantsMixing] = useState(false);
  const [uploaded, setUploaded] = useState('');
  /** @type {{name: string}[]} */
  const problems = Array.isArray(fullConfig.problems) ? fullConfig.problems : [];
  const isMixing = wantsMixing || problems.length > 1;
  const problemsField = makeField(layer, fullConfig, 'problems');
  const choose = (/** @type {object[]} */ chosenProblems) =>
    layer.onChange('problems', isMixing ? [...problems, ...chosenProblems] : chosenProblems);
  const take = (/** @type {Api.DatasetItem} */ { path, mapping }) => {
    setUploaded(path);
    choose([{ ...makeMember(layer.root, problemsField.node.items, 'file'), ...mapping, path }]);
  };
  return html`<section class="card launch-card" aria-labelledby="launch-problems">
    <h2 id="launch-problems">
      <span class="launch-number">2</span> Problems
    </h2>
    <${ListField}
      field=${problemsField}
      value=${fullConfig.problems}
      layer=${{ ...layer, uploaded }}
      FormField=${FormField}
      label="problems"
      bare
      isSingle=${!isMixing}
      titles=${new Map(offers.map(({ name, title }) => [name, title]))}
    >
      ${!problems.some(({ name }) => name === 'file') && html`<${UploadProblems} onDone=${take} />`}
      <${OfferMenu}
        label="Known datasets"
        align="left"
        offers=${recipes}
        onChoose=${(/** @type {Api.Offer} */ { config }) => choose(config.problems)}
      />
      ${
        problems.length < 2 &&
        html`<button
          type="button"
          class="button-quiet"
          aria-pressed=${wantsMixing}
          title="Add to the problems instead of replacing them"
          onClick=${() => setWantsMixing(!wantsMixing)}
        >
          ${wantsMixing ? 'Do not mix' : 'Mix'}
        </button>`
      }
    <//>
    <${Preview} problems=${fullConfig.problems} seed=${seed} />
  </section>`;
}

/** @param {{onDone: (dataset: Api.DatasetItem) => void}} props */
function UploadProblems({ onDone }) {
  const datasets = useLoad('datasets', (signal) => get('/datasets', undefined, signal));
  return html`<${ForOperator}><${Upload} maxBytes=${datasets.data?.max_bytes} onDone=${onDone} /><//>`;
}

/**
 * A few actual prompts of the sources, with their answers.
 * @param {{problems: object[], seed: number}} props
 */
function Preview({ problems, seed }) {
  const key = useSettled(makeContentKey({ problems, seed }), PAUSE_MS);
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
        <${Heads} heads=${['prompt', 'answer']} />
        <tbody>
          ${data.items.map(
            ({ prompt, answer }, i) => html`<tr key=${i}>
              <td>
                <bdi>${toOneLine(prompt)}</bdi>
              </td>
              <td>
                <bdi>${answer === null || answer === undefined ? '–' : toOneLine(String(answer))}</bdi>
              </td>
            </tr>`,
          )}
        </tbody>
      </table>`
    }
    ${data.note && html`<p class="quiet">${data.note}</p>`}
  </div>`;
}

/** Fields whose errors belong to all variants unless one of them writes the field. */
export const SHARED = [
  'policy',
  'problems',
  'steps',
  'evaluation',
  'checkpointing',
  'recording',
  'stop_rules',
  'resources',
];
