/** The peak memory of a run by part, and the workers on which it fits. */
import { html } from '../../dom.js';
import { mayChange } from '../../app/state.js';
import { formatBytes, plural } from '../../lib/text/format.js';
import { spell } from '../../lib/launch/layers.js';
import { Icon } from '../shared/icons.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('./validation.js').Verdict} Verdict */
/** @typedef {Api.MemoryEstimate} Memory */
/** @typedef {(indexes: number[], changes: Api.MemoryChange[]) => void} Apply */

/** @type {Record<string, string>} */
const TITLES = {
  activations: 'Activations',
  adapter: 'Adapter',
  cache: 'Cache of keys, values and states',
  context: 'Process and CUDA context',
  copies: 'Older copies of the weights',
  critic: 'Critic and its optimizer',
  drawn: 'Sampled tokens',
  engine: 'vLLM while it samples',
  gathered: 'Gathered layers',
  gradients: 'Gradients',
  logits: 'Logits',
  optimizer: 'Optimizer',
  reference: 'Reference',
  sampler: 'Sampler’s copy of the weights',
  shards: 'Part of the sharded weights',
  weights: 'Weights',
};

/** @type {Record<string, string>} */
const MEASURES = {
  'resources.microbatch_tokens': 'smaller micro-batches',
  'resources.activation_checkpointing': 'recomputed activations',
  'optimizer.moments': '8-bit optimizer',
  'policy.adapter': 'LoRA',
  'policy.quantization': '4-bit base (QLoRA)',
  'resources.offload_reference': "reference in the host's memory",
  'resources.offload_optimizer': "optimizer in the host's memory",
};

/**
 * Memory estimates. Variants with the same estimate share one.
 * @param {{names: string[], verdicts: Verdict[], onApply: Apply}} props
 */
export function MemoryEstimates({ names, verdicts, onApply }) {
  /** @type {Map<string, {memory: Memory, indexes: number[]}>} */
  const groups = new Map();
  verdicts.forEach(({ valid }, index) => {
    if (!valid?.memory) return;
    const key = spell(valid.memory);
    const group = groups.get(key) ?? { memory: valid.memory, indexes: [] };
    group.indexes.push(index);
    groups.set(key, group);
  });
  return [...groups].map(
    ([key, { memory, indexes }]) => html`<${MemoryEstimate}
      key=${key}
      memory=${memory}
      whose=${groups.size > 1 ? indexes.map((index) => names[index]).join(', ') : ''}
      onApply=${(/** @type {Api.MemoryChange[]} */ changes) => onApply(indexes, changes)}
    />`,
  );
}

/** @param {{memory: Memory, whose: string, onApply: (changes: Api.MemoryChange[]) => void}} props */
function MemoryEstimate({ memory, whose, onApply }) {
  const ownerText = whose ? ` of ${whose}` : '';
  if (typeof memory.peak_bytes !== 'number')
    return html`<p class="form-help memory">Memory${ownerText}: ${memory.unknown}</p>`;
  const needsHost = memory.device === 'gpu' && (memory.host_bytes ?? 0) > 0;
  return html`<section class="memory" aria-label=${`Memory${ownerText}`}>
    <details>
      <summary>
        Memory${ownerText}: <strong>about ${formatBytes(memory.peak_bytes)}</strong> at its peak,${' '}
        ${memory.phase === 'sample' ? 'while it samples' : 'while it learns'}
      </summary>
      <${MemoryParts} parts=${memory.parts ?? {}} total=${memory.peak_bytes} />
      <p class="form-help">
        Counted for ${describeDevices(memory)}, prompts of ${memory.prompt_tokens} tokens and completions of maximum length.
        ${needsHost && ` The host needs ${formatBytes(memory.host_bytes)} more.`}
      </p>
    </details>
    <ul class="memory-slots">
      ${memory.slots?.map(
        (slot) => html`<li key=${`${slot.host} ${slot.device_name} ${slot.usable_bytes}`}>
          <${Slot} slot=${slot} onApply=${onApply} />
        </li>`,
      )}
    </ul>
    ${!memory.slots?.length && html`<p class="form-help">No worker is running: there is no device to compare with.</p>`}
  </section>`;
}

/**
 * Returns the device to which the numbers apply, e.g. "each of 4 GPUs".
 * @param {Memory} memory
 */
function describeDevices({ device, devices = 1, nodes = 1 }) {
  const nodeText = nodes > 1 ? ` of each of ${nodes} nodes` : '';
  if (devices > 1)
    return (device === 'cpu' ? `${devices} processes in one slot` : `each of ${devices} GPUs`) + nodeText;
  return (device === 'cpu' ? 'a processor' : 'a GPU') + nodeText;
}

/** @param {{parts: Record<string, number>, total: number}} props */
function MemoryParts({ parts, total }) {
  return html`<table class="table estimates memory-parts">
    <caption class="visually-hidden">Memory by part</caption>
    <tbody>
      ${Object.entries(parts).map(
        ([name, bytes]) => html`<tr key=${name}>
          <th scope="row">${lookup(TITLES, name) ?? name}</th>
          <td class="memory-bar"><meter min="0" max=${total} value=${bytes} aria-hidden="true"></meter></td>
          <td class="number">${formatBytes(bytes)}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** @param {{slot: Api.MemorySlot, onApply: (changes: Api.MemoryChange[]) => void}} props */
function Slot({ slot, onApply }) {
  const device = `${slot.slots > 1 ? `${plural(slot.slots, 'slot')} of ` : ''}${slot.host}`;
  const roomText =
    typeof slot.usable_bytes === 'number'
      ? ` (${formatBytes(slot.usable_bytes)} usable${slot.slots > 1 ? ' each' : ''})`
      : '';
  const slotName = html`<span title=${slot.device_name}>${device}${roomText}</span>`;
  const changes = slot.changes ?? [];
  if (slot.verdict === 'fits') return html`<${Icon} name="check" size=${12} /> Fits on ${slotName}`;
  if (slot.verdict === 'unknown') return html`${slotName} does not report its memory`;
  if (slot.verdict === 'does not fit')
    return html`<span class="memory-no"><${Icon} name="warn" size=${12} /> Does not fit on</span> ${slotName} even with
      changes: it takes ${formatBytes(slot.peak_bytes)}`;
  return html`<span class="memory-no"><${Icon} name="warn" size=${12} /> Fits with changes on</span> ${slotName}
    <ul class="memory-changes">
      ${changes.map(
        ({ path, value, saves_bytes: savedBytes }) => html`<li key=${path}>
          <span title=${path}>${lookup(MEASURES, path) ?? path}${typeof value === 'number' ? `: ${value} tokens` : ''}</span>
          ${' '}(saves ${formatBytes(savedBytes)})
        </li>`,
      )}
    </ul>
    ${
      mayChange.value &&
      html`<button class="button" onClick=${() => onApply(changes)}>
        Apply ${plural(changes.length, 'change')}
      </button>`
    }`;
}
