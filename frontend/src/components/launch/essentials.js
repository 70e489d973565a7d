/** The settings that are changed most often. They are always open and apply to all variants. */
import { html } from '../../dom.js';
import { getAt } from '../../lib/launch/layers.js';
import { findField, listMemberNames, readTag } from '../../lib/launch/schema.js';
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

/** @param {Layer} layer @param {any} fullConfig @param {string} path @returns {import('./row.js').Field | undefined} */
function findEssentials(layer, fullConfig, path) {
  if (path !== `${KL}.type`) return findField(layer.root, path, fullConfig);
  const { node, ...field } = /** @type {import('./row.js').Field} */ (findField(layer.root, KL, fullConfig));
  const names = listMemberNames(layer.root, node);
  return { ...field, key: readTag(node), path, kind: 'choice', node: { enum: names, description: node.description } };
}

/**
 * @param {{layer: Layer, fullConfig: import('../../lib/launch/layers.js').Fields, seeds: string,
 *   parsedSeeds: {seeds: number[], error: string}, onSeeds: (text: string) => void}} props
 */
export function EssentialsCard({ layer, fullConfig, seeds, parsedSeeds, onSeeds }) {
  const fields = ESSENTIALS.flatMap(([path]) => findEssentials(layer, fullConfig, path) ?? []);
  return html`<section class="card launch-card" aria-labelledby="launch-essentials">
    <h2 id="launch-essentials">
      <span class="launch-number">4</span> Essentials
    </h2>
    <div class="form-grid">
      ${fields.map(
        (field) => html`<${FormField}
          key=${field.path}
          field=${field}
          value=${getAt(fullConfig, field.path)}
          layer=${withWholeKl(layer)}
          label=${field.path.replace(/^objective\./, '')}
        />`,
      )}
      <${Seeds} text=${seeds} parsedSeeds=${parsedSeeds} onChange=${onSeeds} />
    </div>
  </section>`;
}

/** @param {{text: string, parsedSeeds: {seeds: number[], error: string}, onChange: (text: string) => void}} props */
function Seeds({ text, parsedSeeds, onChange }) {
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
      aria-invalid=${parsedSeeds.error ? 'true' : undefined}
      aria-describedby="launch-seeds-help"
    />
    <p class="form-help" id="launch-seeds-help">
      Each variant runs once per seed: a list (<code>0,1,2</code>) or a range (<code>0-4</code>).${' '}
      ${parsedSeeds.error ? '' : `${plural(parsedSeeds.seeds.length, 'seed')}.`}
    </p>
    <${Errors} errors=${parsedSeeds.error ? [parsedSeeds.error] : []} id="launch-seeds-error" />
  </div>`;
}
