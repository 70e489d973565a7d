/** Tabs of a run's page: config, events, the trainer's output and files. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../dom.js';
import { fileAddress, get } from '../../data/api.js';
import { copyText, download } from '../../app/actions.js';
import { useGet, useThrottled } from '../../data/resource.js';
import { useHistory } from '../../data/run_events.js';
import { findChanges } from '../../lib/launch/layers.js';
import { toYaml } from '../../lib/text/yaml.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { isForeign, originTitle } from '../../lib/runs/origin.js';
import { terminalText } from '../../lib/text/log.js';
import { formatBytes, formatCount, formatTime, formatValue, plural } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Ago, Empty, Loaded } from '../shared/states.js';
import { Visible } from '../rollouts/text.js';
import { Restoration, readManifest } from './restorations.js';
import { Evaluate } from './evaluate.js';
import { ArchiveLinks, ModelLink } from './exports.js';
import { ConfigTree } from './config_tree.js';
import { ForkLink } from './fork_link.js';
import { DataTable, makeNumberHeads } from '../shared/data_table.js';

/** @param {Api.RunItem} run */
const emptyText = (run) => (isForeign(run) ? 'The trainer logged no config.' : 'All fields have their default values.');

/** @param {{run: Api.RunItem, view: {full: boolean}, change: Function}} props */
export function ConfigTab({ run, view, change }) {
  const schema = useGet('/config-schema');
  const config =
    view.full || isForeign(run) ? run.config : schema.data && findChanges(schema.data.defaults, run.config ?? {});
  const text = useMemo(() => (config ? toYaml(config) : ''), [config]);
  return html`
    <div class="toolbar run-tools">
      ${
        isForeign(run)
          ? html`<span class="quiet">
            As ${originTitle(run.origin)} logged it
          </span>`
          : html`<label class="check">
            <input type="checkbox" checked=${!view.full} onChange=${() => change({ full: !view.full })} />${' '}
            Only changes from the defaults
          </label>`
      }
      <span class="spacer"></span>
      <button type="button" class="button button-small" onClick=${() => copyText(text, 'Config')}>
        <${Icon} name="copy" size=${12} /> Copy
      </button>
      <button
        type="button"
        class="button button-small"
        onClick=${() => download(text, `${run.name}.yaml`, 'application/yaml')}
      >
        <${Icon} name="download" size=${12} /> YAML
      </button>
    </div>
    ${
      config
        ? html`<${ConfigTree}
          config=${config}
          defaults=${isForeign(run) ? {} : (schema.data?.defaults ?? {})}
          empty=${emptyText(run)}
        />`
        : html`<${Loaded} resource=${schema}>${() => null}<//>`
    }
  `;
}

/** @param {{run: Api.RunItem}} props */
export function EventsTab({ run }) {
  const history = useHistory(run.id);
  return html`<${Loaded}
    resource=${history}
    isEmpty=${(items) => !items.length}
    empty=${html`<${Empty} title="No events yet" />`}
  >
    ${(items) => html`
      <ol class="card timeline">
        ${items.map((event) => html`<${EventRow} key=${event.id} event=${event} run=${run.id} />`)}
      </ol>
      ${
        history.loadMore &&
        html`<p class="run-more">
          <button type="button" class="button" onClick=${history.loadMore}>
            Older events
          </button>${' '}
          <span class="faint">the newest ${formatCount(items.length)} are shown</span>
        </p>`
      }
    `}
  <//>`;
}

/** @type {Record<string, string>} */
const SIGNS = { info: 'circle', warning: 'warn', error: 'cross' };

/** @param {{event: Api.RunEvent, run: string}} props */
function EventRow({ event, run }) {
  return html`<li class=${`event event-${event.level}`}>
    <${Icon} name=${SIGNS[event.level] ?? 'circle'} size=${12} label=${event.level} />
    <time class="faint" title=${formatTime(event.at)}>
      ${formatTime(event.at)}
    </time>
    <span class="event-kind">${event.kind}</span>
    <span class="event-message">
      <${Visible} text=${event.message} />
      ${
        readManifest(event) &&
        html`<details class="more">
          <summary>What was restored</summary>
          <${Restoration} manifest=${readManifest(event)} />
        </details>`
      }
    </span>
    <span class="faint event-place">
      ${
        event.step !== null &&
        event.step !== undefined &&
        html`<a href=${rolloutsAddress(run, { step: event.step })}>step ${event.step}</a>`
      }${' '}
      ${event.attempt ? `attempt ${event.attempt}` : ''}
    </span>
  </li>`;
}

const KEPT_CHARACTERS = 400_000;

/**
 * Output of the trainer, page by page. The last page is reloaded while the run is alive.
 * @typedef {{pages: Map<string, Api.LogChunk[]>, error: ApiError | null, loaded: boolean}} LogState
 * @typedef {import('../../data/api.js').ApiError} ApiError
 * @param {string} run @param {boolean} live
 */
function useLog(run, live) {
  const [state, setState] = useState(/** @type {LogState} */ ({ pages: new Map(), error: null, loaded: false }));
  const cursor = useRef('');
  const busy = useRef(false);
  const read = async () => {
    if (busy.current) return;
    busy.current = true;
    try {
      /** @type {string | null} */
      let next;
      do {
        const position = cursor.current;
        /** @type {Api.List<Api.LogChunk>} */
        const page = await get(`/runs/${run}/logs`, { cursor: position, limit: 200 });
        setState((old) => ({ pages: new Map(old.pages).set(position, page.items), error: null, loaded: true }));
        next = page.next;
        if (next) cursor.current = next;
      } while (next);
    } catch (error) {
      setState((old) => ({ ...old, error: /** @type {ApiError} */ (error) }));
    }
    busy.current = false;
  };
  const readSoon = useThrottled(read, 1500);
  useEffect(() => {
    read();
  }, [run]);
  useEffect(() => {
    if (!live) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) readSoon();
    }, 2000);
    return () => clearInterval(timer);
  }, [live]);
  return { ...state, reload: read, chunks: [...state.pages.values()].flat() };
}

/** @param {{run: Api.RunItem}} props */
export function LogTab({ run }) {
  const live = run.status === 'running';
  const { chunks, error, loaded, reload } = useLog(run.id, live);
  const [follow, setFollow] = useState(true);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const text = useMemo(() => terminalText(joinChunks(chunks)), [chunks.length, chunks.at(-1)?.text]);
  const shownText = text.slice(-KEPT_CHARACTERS);
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shownText, follow]);
  const handleScroll = () => {
    if (!box.current) return;
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    setFollow(scrollHeight - scrollTop - clientHeight < 24);
  };
  const resource = { data: loaded ? chunks : undefined, error, reload, loadedAt: Date.now() };
  return html`<${Loaded}
    resource=${resource}
    isEmpty=${(items) => !items.length}
    empty=${html`<${Empty} title="No output yet">
      ${
        live || run.status === 'queued' ? "The trainer's output appears here." : "This run's trainer printed no output."
      }
    <//>`}
  >
    ${() => html`
      <div class="toolbar run-tools">
        <span class="quiet">
          ${live ? 'live' : 'complete'} · ${plural(text.split('\n').length - 1, 'line')}
          ${shownText.length < text.length ? ', showing the latest' : ''}
        </span>
        <span class="spacer"></span>
        <label class="check">
          <input type="checkbox" checked=${follow} onChange=${() => setFollow(!follow)} /> follow
        </label>
        <button type="button" class="button button-small" onClick=${() => copyText(text, 'Log')}>
          <${Icon} name="copy" size=${12} /> Copy
        </button>
        <button
          type="button"
          class="button button-small"
          onClick=${() => download(text, `${run.name}.log`, 'text/plain')}
        >
          <${Icon} name="download" size=${12} /> Text
        </button>
      </div>
      <pre
        class="card code run-log"
        ref=${box}
        tabindex="0"
        aria-label="Output of the trainer"
        onScroll=${handleScroll}
      >
        <${Visible} text=${shownText} />
      </pre>
    `}
  <//>`;
}

/** Returns the pieces in order, with a line where another attempt begins. */
const joinChunks = (/** @type {Api.LogChunk[]} */ chunks) =>
  chunks
    .map(({ attempt, text }, i) =>
      i > 0 && attempt !== chunks[i - 1].attempt ? `\n── attempt ${attempt} ──\n${text}` : text,
    )
    .join('');

/** Returns the metric that decides about the best checkpoint. @param {Api.RunItem} run */
function findBestMetric({ config }) {
  const suite = config?.checkpointing?.best_by;
  return suite ? `accuracy on ${suite}` : 'held-out accuracy';
}

/** Returns the locations of a checkpoint's files in words. @param {Api.CopyItem[]} copies @param {string} name */
function copyStateText(copies, name) {
  const copy = copies.find((item) => item.name === name);
  if (!copy) return '';
  if (copy.is_copied) return copy.is_here ? 'copied to the artifact store' : 'in the artifact store only';
  return copy.is_here ? 'not copied yet' : 'files are missing';
}

/** @param {{run: Api.RunItem}} props */
export function FilesTab({ run }) {
  const checkpoints = useGet(`/runs/${run.id}/checkpoints`, undefined, {
    live: ['event'],
    concerns: (data) => data.run === run.id,
    every: 3000,
  });
  const hasAny = Boolean(checkpoints.data?.items.length);
  const copies = useGet(hasAny ? `/runs/${run.id}/checkpoints/copies` : null, undefined, {
    live: ['event'],
    concerns: (data) => data.run === run.id,
    every: 30_000,
  });
  const copyState = copies.data?.has_store ? copies.data : null;
  return html`
    <section class="card run-part">
      <h2>Checkpoints</h2>
      <p class="quiet">
        Each checkpoint is a Hugging Face directory that <code>from_pretrained</code> can load.
      </p>
      <${Loaded}
        resource=${checkpoints}
        isEmpty=${({ items }) => !items.length}
        empty=${html`<p class="quiet run-none">
          No checkpoints yet${
            run.config?.checkpointing?.every
              ? `. One is saved every ${plural(run.config.checkpointing.every, 'step')} and at the end`
              : ''
          }
          .
        </p>`}
      >
        ${({ items }) => html`
          <p class="quiet">
            ${plural(items.length, 'checkpoint')},${' '}
            ${formatBytes(items.reduce((sum, { bytes }) => sum + bytes, 0))} in total. Retention keeps the latest${' '}
            ${run.config?.checkpointing?.keep ?? ''}, the best by${' '}
            ${findBestMetric(run)},
            up to${' '}
            ${run.config?.checkpointing?.spaced ?? 4} older ones spread over the run, the newest before the onset of a
            fall or warning, and any that other runs use.
          </p>
          ${
            copies.error &&
            html`<p class="quiet" role="status">
              Copy status unavailable: ${copies.error.message}
            </p>`
          }
          <${DataTable}
            name="Checkpoints"
            kind="table run-checkpoints"
            heads=${[
              ...makeNumberHeads('step', 'attempt', 'accuracy', 'size'),
              'saved',
              { title: html`<span class="visually-hidden">Action</span>` },
              'files',
            ]}
          >
            <tbody>
              ${items.map(
                (item) => html`<tr key=${item.id}>
                  <td class="number" data-label="step">
                    ${item.step}
                  </td>
                  <td class="number" data-label="attempt">
                    ${item.attempt}
                  </td>
                  <td class="number" data-label="accuracy">
                    ${formatValue(item.accuracy)}
                  </td>
                  <td class="number" data-label="size">
                    ${formatBytes(item.bytes)}
                  </td>
                  <td data-label="saved">
                    <${Ago} time=${item.created_at} />
                    ${copyState && html`<div class="faint run-copy">${copyStateText(copyState.items, item.name)}</div>`}
                    ${
                      item.kept_for &&
                      html`<div class="faint run-kept">
                        kept: before the onset at step ${item.onset}${item.kept_for === 'warning' && ' (warning)'}
                      </div>`
                    }
                  </td>
                  <td class="run-checkpoint-actions">
                    <${ForkLink} run=${run} step=${item.step} look="button button-small" /> <${Evaluate} run=${run} steps=${[item.step]} />
                    ${' '}<${ModelLink} run=${run} step=${item.step} />
                  </td>
                  <td class="run-files">
                    <details>
                      <summary>${plural(item.files.length, 'file')}</summary>
                      <div>
                      ${item.files.map(
                        (file) => html`<${FileLink}
                        key=${file.name}
                        run=${run.id}
                        name=${file.name}
                        checkpoint=${item.name} />`,
                      )}
                    </div>
                    </details>
                  </td>
                </tr>`,
              )}
            </tbody>
          <//>
        `}
      <//>
    </section>
    <section class="card run-part section">
      <h2>Metrics</h2>
      <ul class="file-list">
        <li>
          <a href=${fileAddress(`/runs/${run.id}/metrics.csv`)} download="">
            metrics.csv
          </a>
          <span class="quiet">one row per step, from the latest attempt</span>
        </li>
        <li>
          <a href=${fileAddress(`/runs/${run.id}/metrics.csv`, { attempts: 'all' })} download="">
            metrics.csv, all attempts
          </a>
          <span class="quiet">includes rows that a later attempt replaced</span>
        </li>
      </ul>
    </section>
    <${ArchiveLinks} run=${run} hasCheckpoints=${hasAny} />
  `;
}

/**
 * A link to a file, named by its path below the checkpoint.
 * @param {{run: string, name: string, checkpoint: string}} props
 */
function FileLink({ run, name, checkpoint }) {
  return html`<a
    href=${fileAddress(`/runs/${run}/files/${name.split('/').map(encodeURIComponent).join('/')}`)}
    download=""
  >
    ${name.replace(`${checkpoint}/`, '')}
  </a>`;
}
