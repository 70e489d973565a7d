/** Queue: the runs in training and on their workers, the waiting runs with reasons, and the workers. */
import { html, useState } from '../dom.js';
import { patch, post } from '../data/api.js';
import { useGet } from '../data/resource.js';
import { mayChange, sayError, status, workers } from '../app/state.js';
import { actOnRuns } from '../app/actions.js';
import { useTitle } from '../app/title.js';
import { etaText, gpuText } from '../lib/service/queue.js';
import { isAlive, runOn } from '../lib/service/workers.js';
import { experimentAddress } from '../lib/runs/addresses.js';
import { isEvaluation } from '../lib/runs/fields.js';
import { waitingText } from '../lib/service/status.js';
import { formatBytes, formatCount, formatPercent, formatRate, plural } from '../lib/text/format.js';
import { Confirm } from '../components/shared/overlay.js';
import { IconButton } from '../components/shared/icons.js';
import { Progress, SandboxLayers, Status } from '../components/shared/marks.js';
import { ForOperator } from '../components/shared/role.js';
import { Ago, Empty, Loaded, Skeleton } from '../components/shared/states.js';
import { Heads, makeNumberHeads } from '../components/shared/data_table.js';

const EVENTS = ['run', 'worker'];
const MAX_WAITING = 200;

/** @typedef {(run: Run, action: (run: Run) => Promise<unknown>) => Promise<void>} Act */
/** @typedef {Api.RunItem} Run */

export function View() {
  useTitle('Queue');
  const runningRuns = useGet('/runs', { status: 'running,paused', limit: 200, sort: 'created_at' }, { live: EVENTS });
  const queue = useGet('/queue', { limit: MAX_WAITING }, { live: EVENTS });
  const [runToStop, setRunToStop] = useState(/** @type {Api.RunItem | null} */ (null));
  /** @type {Act} */
  const act = async (run, action) => {
    try {
      await action(run);
      runningRuns.reload();
      queue.reload();
    } catch (error) {
      sayError(error);
    }
  };
  const isIdle = runningRuns.data?.items.length === 0 && queue.data?.items.length === 0;

  return html`<div class="page queue">
    <div class="page-head">
      <h1>Queue</h1>
    </div>
    ${
      isIdle
        ? html`<${Empty}
          title="No runs training or waiting"
          action=${
            mayChange.value &&
            html`<a class="button button-primary" href="/launch">
              Launch runs
            </a>`
          }
        >
          <${IdleText} />
        <//>`
        : html`
          <section class="section">
            <div class="section-head">
              <h2>Training</h2>
              <span class="faint">${runningRuns.data && plural(runningRuns.data.items.length, 'run')}</span>
            </div>
            <div class="card table-scroll" tabindex="0" role="group" aria-label="Training">
              <${Loaded}
                resource=${runningRuns}
                skeleton=${html`<${Skeleton} rows=${2} height=${40} />`}
                isEmpty=${(data) => !data.items.length}
                empty=${html`<p class="queue-none">No runs are training.</p>`}
              >
                ${(data) => html`<${Training} runs=${data.items} act=${act} stop=${setRunToStop} />`}
              <//>
            </div>
          </section>
          <section class="section">
            <div class="section-head">
              <h2>Waiting</h2>
              <span class="faint">
                ${queue.data && `${queue.data.next ? 'the first ' : ''}${plural(queue.data.items.length, 'run')}`}
              </span>
            </div>
            <div class="card table-scroll" tabindex="0" role="group" aria-label="Waiting">
              <${Loaded}
                resource=${queue}
                skeleton=${html`<${Skeleton} rows=${4} height=${40} />`}
                isEmpty=${(data) => !data.items.length}
                empty=${html`<p class="queue-none">
            The queue is empty. New runs start as soon as a worker is free.
          </p>`}
              >
                ${(data) => html`<${Waiting} items=${data.items} act=${act} stop=${setRunToStop} />`}
              <//>
            </div>
          </section>
        `
    }
    <${Workers} />
    ${
      runToStop &&
      html`<${Confirm}
        title=${`Stop ${runToStop.name}?`}
        confirm="Stop"
        onClose=${() => setRunToStop(null)}
        onConfirm=${() =>
          actOnRuns('stop', [runToStop.id], () => {
            runningRuns.reload();
            queue.reload();
          })}
        text=${
          runToStop.status === 'queued'
            ? 'The run leaves the queue without training.'
            : 'The run stops after the current step. Recorded data is kept.'
        }
      />`
    }
  </div>`;
}

function IdleText() {
  const alive = workers.value.items.filter((slot) => isAlive(slot));
  return alive.length
    ? `${plural(alive.length, 'worker slot')} free.`
    : 'There are no workers either. Launched runs wait until you start one.';
}

const renderNameCell = (/** @type {Run} */ run) => html`
  <td>
    <a class="queue-name" href=${`/run/${run.id}`} title=${run.name}>
      ${run.name}
    </a>
  </td>
  <td>${run.variant || '–'}</td>
  <td class="number">${run.seed ?? '–'}</td>
  <td>
    ${
      run.experiment
        ? html`<a class="quiet" href=${experimentAddress(run.experiment)}>
          ${run.experiment_name ?? run.experiment}
        </a>`
        : '–'
    }
  </td>
`;

const NAMES = ['run', 'variant', ...makeNumberHeads('seed'), 'experiment'];
const ACTION = { title: html`<span class="visually-hidden">Action</span>` };

/** @param {string} icon @param {string} title @param {() => void} onClick */
const renderButton = (icon, title, onClick) =>
  html`<${IconButton} icon=${icon} label=${title} title=${title} onClick=${onClick} />`;

const pause = (/** @type {Run} */ { id }) => post(`/runs/${id}/pause`);
const resume = (/** @type {Run} */ { id }) => post(`/runs/${id}/resume`);
const withPriority =
  (/** @type {number} */ offset) =>
  (/** @type {Run} */ { id, priority }) =>
    patch(`/runs/${id}`, { priority: (priority ?? 0) + offset });

/** @param {{runs: Run[], act: Act, stop: (run: Run) => void}} props */
function Training({ runs, act, stop }) {
  const findSlot = (/** @type {Run} */ run) => workers.value.items.find((slot) => runOn(slot) === run.id);
  return html`<table class="table">
    <${Heads} heads=${[...NAMES, 'status', 'worker', 'device', ...makeNumberHeads('step', 'time left'), ACTION]} />
    <tbody>
      ${runs.map((run) => {
        const slot = findSlot(run);
        return html`<tr key=${run.id}>
          ${renderNameCell(run)}
          <td>
            <${Status} run=${run} /> <span class="faint">${waitingText(status.value, run.id)}</span>
          </td>
          <td>${slot ? slot.host : '–'}</td>
          <td>${slot ? slot.device_name || slot.device : '–'}</td>
          <td class="number">
            ${
              isEvaluation(run)
                ? html`<span class="faint">${run.is_check ? 'check' : 'evaluation'}</span>`
                : html`<span class="queue-steps">
                  ${formatCount(run.last_step ?? 0)}
                  <span class="faint">/${formatCount(run.steps)}</span>
                  <${Progress} doneSteps=${run.last_step} all=${run.steps} />
                </span>`
            }
          </td>
          <td class="number">${run.status === 'running' ? etaText(run) : '–'}</td>
          <td class="queue-actions">
            <${ForOperator}>
              ${
                run.status === 'paused'
                  ? renderButton('play', 'Resume', () => act(run, resume))
                  : renderButton('pause', 'Pause after the current step', () => act(run, pause))
              }
              ${renderButton('stop', 'Stop', () => stop(run))}
            <//>
          </td>
        </tr>`;
      })}
    </tbody>
  </table>`;
}

/** @param {{items: Api.QueuedRun[], act: Act, stop: (run: Run) => void}} props */
function Waiting({ items, act, stop }) {
  return html`<table class="table">
    <${Heads} heads=${[...makeNumberHeads('#'), ...NAMES, 'waiting for', ...makeNumberHeads('priority'), 'since', ACTION]} />
    <tbody>
      ${items.map(
        (run) => html`<tr key=${run.id}>
          <td class="number faint">${run.position}</td>
          ${renderNameCell(run)}
          <td>${run.why}</td>
          <td class="number">${run.priority ?? 0}</td>
          <td class="quiet">
            <${Ago} time=${run.queued_at ?? run.created_at} />
          </td>
          <td class="queue-actions">
            <${ForOperator}>
              ${renderButton('up', 'Raise priority by 1', () => act(run, withPriority(1)))}
              ${renderButton('down', 'Lower priority by 1', () => act(run, withPriority(-1)))}
              ${renderButton('cross', 'Remove from the queue', () => stop({ ...run, status: 'queued' }))}
            <//>
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

function Workers() {
  const { items, loaded, error } = workers.value;
  const gpus = items.some((slot) => gpuText(slot.stats));
  return html`<section class="section">
    <div class="section-head">
      <h2>Workers</h2>
      <span class="faint">one row per slot</span>
    </div>
    <div class="card table-scroll" tabindex="0" role="group" aria-label="Workers">
      ${
        !loaded
          ? html`<${Skeleton} rows=${2} />`
          : error && !items.length
            ? html`<p class="queue-none">${error.message}</p>`
            : !items.length
              ? html`<p class="queue-none">
                No workers connected. <code>grpolab up</code> starts a worker together with the service. To use another
                machine, start a worker there with the same database and broker addresses.
              </p>`
              : html`<table class="table">
                <${Heads} heads=${[
                  'device',
                  'host',
                  ...makeNumberHeads('pid'),
                  'state',
                  ...makeNumberHeads('CPU'),
                  'memory',
                  gpus && 'GPU',
                  { title: 'disk', help: 'bytes per second read and written' },
                  ...makeNumberHeads('disk free'),
                  { title: 'network', help: 'bytes per second received and sent' },
                  'sandbox',
                  'last heartbeat',
                ]} />
                <tbody>
                  ${items.map((slot) => html`<${Slot} key=${slot.id} slot=${slot} gpus=${gpus} />`)}
                </tbody>
              </table>`
      }
    </div>
  </section>`;
}

/** @param {number | undefined} used @param {number | undefined} total */
const formatAmount = (used, total) =>
  used === undefined
    ? '–'
    : html`
      ${formatBytes(used)}${' '}
      <span class="faint">of ${formatBytes(total)}</span>
    `;

/**
 * Returns the bytes per second in and out.
 * @param {number | undefined} receivedRate @param {number | undefined} sentRate
 */
const formatTraffic = (receivedRate, sentRate) =>
  receivedRate === undefined || sentRate === undefined
    ? '–'
    : html`
      <span title="in">↓ ${formatRate(receivedRate)}</span>${' '}
      <span title="out">↑ ${formatRate(sentRate)}</span>
    `;

/** @param {{slot: Api.WorkerSlot, gpus: boolean}} props */
function Slot({ slot, gpus }) {
  const alive = isAlive(slot);
  const run = runOn(slot);
  return html`<tr class=${alive ? '' : 'is-gone'}>
    <td>
      ${slot.device_name || slot.device}
      <span class="faint"> ${slot.device_name ? slot.device : `slot ${slot.slot ?? 0}`}</span>
    </td>
    <td>${slot.host}</td>
    <td class="number">${slot.pid}</td>
    <td>
      <span class="slot-state">
        <span class=${`lamp lamp-${!alive ? 'none' : run ? 'busy' : 'idle'}`}></span>
        ${!alive ? 'lost' : run ? html`<a href=${`/run/${run}`}>training</a>` : 'idle'}
      </span>
    </td>
    <td class="number">${formatPercent(slot.stats?.cpu_frac)}</td>
    <td>${formatAmount(slot.stats?.memory_bytes, slot.stats?.memory_total_bytes)}</td>
    ${
      gpus &&
      html`<td>
        ${gpuText(slot.stats) || '–'}
        <div>${gpuText(slot.stats) && formatAmount(slot.stats?.gpu_memory_bytes, slot.stats?.gpu_memory_total_bytes)}</div>
      </td>`
    }
    <td>${formatTraffic(slot.stats?.disk_read_rate, slot.stats?.disk_write_rate)}</td>
    <td class="number">${formatBytes(slot.stats?.disk_free_bytes)}</td>
    <td>${formatTraffic(slot.stats?.network_receive_rate, slot.stats?.network_send_rate)}</td>
    <td>
      <${SandboxLayers} layers=${slot.stats?.sandbox} />
    </td>
    <td class="quiet">
      <${Ago} time=${slot.seen_at} />
    </td>
  </tr>`;
}
