/** The settings that are changed most often. They are always open and apply to all variants. */
import { html } from '../../dom.js';
import { getAt } from '../../lib/launch/layers.js';
import { fieldAt, memberNames, tagOf } from '../../lib/launch/schema.js';
import { ESSENTIALS } from '../../lib/launch/settings.js';
import { plural } from '../../lib/text/format.js';
import { FormField } from './field.js';
import { Errors } from './row.js';

/** @typedef {import('./row.js').Layer} Layer */

const KL = 'objective.kl';

/**
 * Writes the complete penalty when the kind of a KL penalty is chosen, because kinds have different fields.
 * @param {Layer} layer @returns {Layer}
 */
const withWholeKl = (layer) => ({
  ...layer,
  errorsAt: (path) => (path === `${KL}.type` ? [path, KL].flatMap(layer.errorsAt) : layer.errorsAt(path)),
  onChange: (path, value) =>
    path === `${KL}.type` ? layer.onChange(KL, { type: value }) : layer.onChange(path, value),
  onReset: (path) => layer.onReset?.(path === `${KL}.type` ? KL : path),
});

/** @param {Layer} layer @param {any} full @param {string} path @returns {import('./row.js').Field | undefined} */
function essentialAt(layer, full, path) {
  if (path !== `${KL}.type`) return fieldAt(layer.root, path, full);
  const { node, ...field } = /** @type {import('./row.js').Field} */ (fieldAt(layer.root, KL, full));
  const names = memberNames(layer.root, node);
  return { ...field, key: tagOf(node), path, kind: 'choice', node: { enum: names, description: node.description } };
}

/**
 * @param {{layer: Layer, full: import('../../lib/launch/layers.js').Fields, seeds: string,
 *   parsed: {seeds: number[], error: string}, onSeeds: (text: string) => void}} props
 */
export function EssentialsCard({ layer, full, seeds, parsed, onSeeds }) {
  const fields = ESSENTIALS.flatMap(([path]) => essentialAt(layer, full, path) ?? []);
  return html`<section class="card launch-card" aria-labelledby="launch-essentials">
    <h2 id="launch-essentials">
      <span class="launch-number">4</span> Essentials
    </h2>
    <div class="form-grid">
      ${fields.map(
        (field) => html`<${FormField}
          key=${field.path}
          field=${field}
          value=${getAt(full, field.path)}
          layer=${withWholeKl(layer)}
          label=${field.path.replace(/^objective\./, '')}
        />`,
      )}
      <${Seeds} text=${seeds} parsed=${parsed} onChange=${onSeeds} />
    </div>
  </section>`;
}

/** @param {{text: string, parsed: {seeds: number[], error: string}, onChange: (text: string) => void}} props */
function Seeds({ text, parsed, onChange }) {
  return html`<div class="form-field">
    <div class="form-label">
      <label for="launch-seeds"><span class="form-words">Seeds</span></label>
    </div>
    <input
      class="field"
      id="launch-seeds"
      value=${text}
      onInput=${(event) => onChange(event.target.value)}
      spellcheck=${false}
      autocomplete="off"
      aria-invalid=${parsed.error ? 'true' : undefined}
      aria-describedby="launch-seeds-help"
    />
    <p class="form-help" id="launch-seeds-help">
      Each variant runs once per seed: a list (<code>0,1,2</code>) or a range (<code>0-4</code>).${' '}
      ${parsed.error ? '' : `${plural(parsed.seeds.length, 'seed')}.`}
    </p>
    <${Errors} errors=${parsed.error ? [parsed.error] : []} id="launch-seeds-error" />
  </div>`;
}
