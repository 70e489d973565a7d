/** Which data set a problem reads: those of this installation are offered, and another one can be uploaded. */
import { html, useId, useRef, useState } from '../../dom.js';
import { get, remove, upload } from '../../data/api.js';
import { sayError } from '../../app/state.js';
import { useLoad } from '../../data/resource.js';
import { formatBytes, formatPercent, plural } from '../../lib/text/format.js';
import { Row } from './field.js';
import { Confirm } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';

/** @typedef {Api.DatasetItem} Dataset */
/** @typedef {Pick<import('../../data/api.js').ApiError, 'message' | 'detail' | 'errors'>} Problem with a file */

const KINDS = '.jsonl,.gz,.zst,.parquet,.csv';

/** @param {Dataset} dataset */
const labelOf = ({ name, rows, bytes }) =>
  `${name} · ${rows === null ? '' : `${plural(rows, 'row')}, `}${formatBytes(bytes)}`;

/**
 * @param {{field: import('../../lib/launch/schema.js').Field, value: string, layer: import('./field.js').Layer,
 *   label: string}} props
 */
export function DatasetField({ field, value, layer, label }) {
  const id = useId();
  const list = useLoad('datasets', (signal) => get('/datasets', undefined, signal));
  const items = list.data?.items ?? [];
  const chosen = items.find(({ path }) => path === value);
  const choose = (/** @type {string} */ path) => {
    list.reload();
    layer.onChange(field.path, path);
  };
  return html`<${Row} field=${field} layer=${layer} label=${label} id=${id} wide>
    <div class="dataset">
      <span class="select">
        <select
          id=${id}
          value=${value ?? ''}
          onChange=${(event) => layer.onChange(field.path, event.target.value)}
          aria-describedby=${`${id}-help`}
        >
          ${
            !chosen &&
            html`<option value=${value ?? ''} selected>
              ${value || (list.data && !items.length ? 'No datasets yet' : 'Choose a dataset')}
            </option>`
          }
          ${items.map(
            (item) => html`<option key=${item.path} value=${item.path} selected=${item === chosen}>
              ${labelOf(item)}
            </option>`,
          )}
        </select>
      </span>
      <${ForOperator}>
        <${Upload} columns=${layer.item} most=${list.data?.most_bytes} onDone=${choose} />
        ${chosen?.sha256 && html`<${Delete} dataset=${chosen} onDone=${() => choose('')} />`}
      <//>
    </div>
    ${
      list.error &&
      html`<p class="form-errors" role="alert">
        ${list.error.message}
      </p>`
    }
  <//>`;
}

/** @type {{share: number | null, error: Problem | null, name: string}} */
const IDLE = { share: null, error: null, name: '' };

/**
 * Chooses a file, sends it and says how far it is; what is wrong with it stands below, by line.
 * @param {{columns?: Record<string, any>, most?: number, onDone: (path: string) => void}} props
 */
function Upload({ columns, most, onDone }) {
  const [state, setState] = useState(IDLE);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const send = async (/** @type {File | undefined} */ file) => {
    if (!file) return;
    if (input.current) input.current.value = '';
    if (most !== undefined && file.size > most) {
      setState({
        ...IDLE,
        name: file.name,
        error: {
          message: `${file.name} has ${formatBytes(file.size)}; at most ${formatBytes(most)} are accepted`,
          detail: '',
          errors: [],
        },
      });
      return;
    }
    const abort = new AbortController();
    stop.current = abort;
    setState({ ...IDLE, name: file.name, share: 0 });
    const params = {
      name: file.name,
      prompt_field: columns?.prompt_field,
      answer_field: columns?.answer_field,
    };
    try {
      const dataset = await upload('/datasets', file, {
        params,
        signal: abort.signal,
        onProgress: (share) => setState((old) => ({ ...old, share })),
      });
      setState(IDLE);
      onDone(dataset.path);
    } catch (error) {
      const problem = /** @type {import('../../data/api.js').ApiError} */ (error);
      setState(problem.name === 'AbortError' ? IDLE : { ...IDLE, name: file.name, error: problem });
    }
  };
  return html`
    <input
      ref=${input}
      type="file"
      accept=${KINDS}
      class="visually-hidden"
      tabindex="-1"
      aria-label="File to upload"
      onChange=${(event) => send(event.target.files[0])}
    />
    ${
      state.share === null
        ? html`<button
          type="button"
          class="button"
          onClick=${() => input.current?.click()}
          title="Upload a .jsonl (also .gz or .zst), .parquet or .csv file from this computer"
        >
          Upload
        </button>`
        : html`<button type="button" class="button" onClick=${() => stop.current?.abort()}>
          Cancel
        </button>`
    }
    ${
      state.share !== null &&
      html`<div class="dataset-progress" role="status">
        <progress
          value=${state.share < 1 ? state.share : undefined}
          aria-label=${`Upload of ${state.name}`}
        ></progress>
        <span class="quiet">
          ${state.share < 1 ? `${formatPercent(state.share)} of ${state.name} sent` : 'Checking every line…'}
        </span>
      </div>`
    }
    ${state.error && html`<${Refused} name=${state.name} error=${state.error} />`}
  `;
}

/** What is wrong with a file, line by line. @param {{name: string, error: Problem}} props */
function Refused({ name, error }) {
  const lines = error.errors?.length ? error.errors : [{ path: '', message: error.detail || error.message }];
  return html`<div class="dataset-refused" role="alert">
    <strong>${name} could not be uploaded</strong>
    <ul class="form-errors">
      ${lines.map(
        ({ path, message }) => html`<li>
          ${
            path &&
            html`
              <b>${path}</b>${' '}
            `
          }
          ${message}
        </li>`,
      )}
    </ul>
  </div>`;
}

/** @param {{dataset: Dataset, onDone: () => void}} props */
function Delete({ dataset, onDone }) {
  const [asking, ask] = useState(false);
  const go = () => remove(`/datasets/${dataset.sha256}`).then(onDone, sayError);
  return html`
    <button
      type="button"
      class="button-icon"
      title="Delete this upload"
      aria-label="Delete this upload"
      onClick=${() => ask(true)}
    >
      <${Icon} name="trash" />
    </button>
    ${
      asking &&
      html`<${Confirm}
        title="Delete this upload?"
        confirm="Delete"
        onClose=${() => ask(false)}
        onConfirm=${go}
        text=${`Finished runs keep the hash of ${dataset.name}. To train on it again, upload it again.`}
      />`
    }
  `;
}
