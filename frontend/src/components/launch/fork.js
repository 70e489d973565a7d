/** The launch form for a fork, with the run and the checkpoint from which it continues. */
import { html } from '../../dom.js';
import { get } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { formatValue } from '../../lib/text/format.js';

/** @typedef {{run: Api.RunItem, checkpoints: Api.Checkpoint[], step: number}} Fork */

/** Loads the parent and its checkpoints, newest first. @param {string} id @param {AbortSignal} signal */
async function loadFork(id, signal) {
  const [run, { items }] = await Promise.all([
    get(`/runs/${id}`, undefined, signal),
    get(`/runs/${id}/checkpoints`, undefined, signal),
  ]);
  return {
    run,
    checkpoints: items.filter(({ step }, i) => items.findIndex((item) => item.step === step) === i),
  };
}

/**
 * Returns the fork in the address with the chosen step, or the newest step if the address names none.
 * @param {{fork: string, step: number}} query
 * @returns {Omit<import('../../data/resource.js').Resource<Fork>, 'put'>}
 */
export function useFork({ fork, step }) {
  const resource = useLoad(fork ? `fork ${fork}` : null, (signal) => loadFork(fork, signal));
  return {
    ...resource,
    data: resource.data && { ...resource.data, step: step >= 0 ? step : (resource.data.checkpoints[0]?.step ?? 0) },
  };
}

/** @param {{fork: Fork, onStep: (step: number) => void}} props */
export function ForkCard({ fork: { run, checkpoints, step }, onStep }) {
  const hasCheckpoint = checkpoints.some((checkpoint) => checkpoint.step === step);
  return html`<section class="card launch-card" aria-labelledby="launch-fork">
    <h2 id="launch-fork">
      <span class="launch-number">1</span> Fork of <a href=${`/run/${run.id}`}>${run.name}</a>
    </h2>
    <label class="fork-step">
      after step${' '}
      <span class="select">
        <select aria-label="Checkpoint" value=${step} onChange=${(event) => onStep(Number(event.target.value))}>
          ${
            !hasCheckpoint &&
            html`<option value=${step} selected>
              ${checkpoints.length ? `${step} (no checkpoint)` : 'no checkpoint yet'}
            </option>`
          }
          ${checkpoints.map(
            (
              checkpoint,
            ) => html`<option key=${checkpoint.id} value=${checkpoint.step} selected=${checkpoint.step === step}>
              ${checkpoint.step}
              ${typeof checkpoint.accuracy === 'number' ? ` (accuracy ${formatValue(checkpoint.accuracy)})` : ''}
            </option>`,
          )}
        </select>
      </span>
    </label>
    <p class="form-help">
      The fork starts from the state of ${run.name} after that step: weights, optimizer, random state and position in
      the data. Your changes apply from the next step on. The policy cannot be changed.
    </p>
  </section>`;
}
