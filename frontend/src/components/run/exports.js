/** Exports on a run's page: the model of a checkpoint, and the archive of the run. */
import { html } from '../../dom.js';
import { fileAddress } from '../../data/api.js';
import { Icon } from '../shared/icons.js';

/** @param {{run: Api.RunItem, step: number}} props */
export function ModelLink({ run, step }) {
  const isAdapter = (run.config?.policy?.adapter?.type ?? 'none') !== 'none';
  const modelName = isAdapter ? 'The LoRA adapter' : 'The model';
  return html`<a
    class="button button-small"
    href=${fileAddress(`/runs/${run.id}/model`, { step })}
    download=""
    title=${`${modelName} with its model card, as a tar file`}
  >
    <${Icon} name="download" size=${12} /> ${isAdapter ? 'Adapter' : 'Model'}
  </a>`;
}

/** @param {{run: Api.RunItem, hasCheckpoints: boolean}} props */
export function ArchiveLinks({ run, hasCheckpoints }) {
  const path = `/runs/${run.id}/archive`;
  return html`<section class="card run-part section">
    <h2>Archive</h2>
    <p class="quiet">
      The run as one tar file: config, metrics, rollouts and tokens as Parquet, events. Another installation imports it
      on <i>Import a log</i>. <a href="/help/export">Export, hub and serving</a>
    </p>
    <ul class="file-list">
      <li>
        <a href=${fileAddress(path)} download="">run-${run.id}.tar</a>
        <span class="quiet">without checkpoints</span>
      </li>
      ${
        hasCheckpoints &&
        html`<li>
          <a href=${fileAddress(path, { checkpoints: 'true' })} download="">run-${run.id}.tar, with checkpoints</a>
          <span class="quiet">can be forked and evaluated where it is imported</span>
        </li>`
      }
    </ul>
  </section>`;
}
