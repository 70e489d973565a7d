/** The upload of a dataset, with a preview of three rows and the recognised columns before the file is sent. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { unsentFiles } from '../../app/state.js';
import { upload } from '../../data/api.js';
import { formatBytes, formatPercent } from '../../lib/text/format.js';
import { Columns } from './columns.js';

/** @typedef {Pick<import('../../data/api.js').ApiError, 'message' | 'detail' | 'errors'>} Problem with a file */
/** @typedef {{file: File, preview: Api.DatasetPreview, mapping: Api.ColumnMapping | null}} Chosen */
/**
 * @typedef {{name: string, share: number | null, isLooking: boolean, chosen: Chosen | null,
 *   error: Problem | null}} State
 * `share`: the share of the file that was sent, or null if it is not being sent
 */

const ACCEPTED_FILES = '.jsonl,.gz,.zst,.parquet,.csv';

/** Number of bytes from which a preview of a text file is made. Parquet files have their columns at the end. */
const PREVIEW_BYTES = 1 << 20;

/** @type {State} */
const IDLE = { name: '', share: null, isLooking: false, chosen: null, error: null };

/** @param {File} file @param {number} maxBytes */
const describeTooLarge = (file, maxBytes) => ({
  message: `${file.name} has ${formatBytes(file.size)}; at most ${formatBytes(maxBytes)} are accepted`,
  detail: '',
  errors: [],
});

/**
 * Requests a preview of the beginning of a file, or of rows from an earlier preview.
 * @param {Blob} body @param {string} name @param {object} params @param {AbortSignal} signal
 * @returns {Promise<Api.DatasetPreview>}
 */
const requestPreview = (body, name, params, signal) =>
  upload('/datasets/preview', new File([body], name), { params: { name, ...params }, signal, onProgress: () => {} });

/**
 * Chooses a file, previews how its rows will be used, and sends it with a progress bar.
 * @param {{maxBytes?: number, onDone: (dataset: Api.DatasetItem) => void}} props
 */
export function Upload({ maxBytes, onDone }) {
  const [state, setState] = useState(IDLE);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const stop = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => stop.current?.abort(), []);
  const isIdle = state.share === null && !state.isLooking;
  useUnsent(isIdle && !state.chosen ? '' : state.name);
  /** @param {Partial<State>} begun @param {(signal: AbortSignal) => Promise<void>} sendRequest */
  const attempt = async (begun, sendRequest) => {
    const abort = new AbortController();
    stop.current?.abort();
    stop.current = abort;
    setState({ ...state, error: null, ...begun });
    try {
      await sendRequest(abort.signal);
    } catch (error) {
      const problem = /** @type {import('../../data/api.js').ApiError} */ (error);
      if (stop.current !== abort) return;
      setState(problem.name === 'AbortError' ? IDLE : { ...IDLE, name: begun.name ?? state.name, error: problem });
    }
  };
  const choose = (/** @type {File | undefined} */ file) => {
    if (!file) return;
    if (input.current) input.current.value = '';
    const { name } = file;
    if (maxBytes !== undefined && file.size > maxBytes) {
      setState({ ...IDLE, name, error: describeTooLarge(file, maxBytes) });
      return;
    }
    const isCut = file.size > PREVIEW_BYTES && !/\.parquet$/i.test(name);
    attempt({ ...IDLE, name, isLooking: true }, async (signal) => {
      const body = isCut ? file.slice(0, PREVIEW_BYTES) : file;
      const preview = await requestPreview(body, name, { cut: isCut }, signal);
      setState({ ...IDLE, name, chosen: { file, preview, mapping: preview.mapping } });
    });
  };
  const change = (/** @type {Partial<Api.ColumnMapping>} */ changes) => {
    const chosenFile = /** @type {Chosen} */ (state.chosen);
    const mapping = { ...makeBlankMapping(chosenFile), ...chosenFile.mapping, ...changes };
    attempt({ chosen: { ...chosenFile, mapping } }, async (signal) => {
      const sample = new Blob([chosenFile.preview.sample]);
      const { sample: _, ...seen } = await requestPreview(sample, 'sample.jsonl', mapping, signal);
      setState({
        ...IDLE,
        name: state.name,
        chosen: { ...chosenFile, preview: { ...chosenFile.preview, ...seen }, mapping },
      });
    });
  };
  const send = (/** @type {Chosen} */ { file, mapping }) =>
    attempt({ chosen: null, share: 0 }, async (signal) => {
      const onProgress = (/** @type {number} */ share) => setState((old) => ({ ...old, share }));
      const params = { name: file.name, ...mapping };
      const dataset = await upload('/datasets', file, { params, signal, onProgress });
      setState(IDLE);
      onDone(dataset);
    });
  return html`
    <input
      ref=${input}
      type="file"
      accept=${ACCEPTED_FILES}
      class="visually-hidden"
      tabindex="-1"
      aria-label="File to upload"
      onChange=${(event) => choose(event.target.files[0])}
    />
    ${
      isIdle
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
    ${!isIdle && html`<${Progress} name=${state.name} share=${state.share} />`}
    ${
      state.chosen &&
      html`<${Columns}
        name=${state.name}
        preview=${state.chosen.preview}
        mapping=${state.chosen.mapping}
        onChange=${change}
        onKeep=${() => state.chosen && send(state.chosen)}
        onCancel=${() => {
          stop.current?.abort();
          setState(IDLE);
        }}
      />`
    }
    ${state.error && html`<${UploadError} name=${state.name} error=${state.error} />`}
  `;
}

/** Prevents the launch while a file is chosen and not uploaded. @param {string} name of the file; empty: none */
function useUnsent(name) {
  useEffect(() => {
    if (!name) return;
    unsentFiles.value = [...unsentFiles.peek(), name];
    return () => {
      unsentFiles.value = unsentFiles.peek().toSpliced(unsentFiles.peek().indexOf(name), 1);
    };
  }, [name]);
}

/**
 * Returns the first two columns as a mapping, if no columns were recognised.
 * @param {Chosen} chosen @returns {Api.ColumnMapping}
 */
const makeBlankMapping = ({ preview: { columns } }) => ({
  prompt_field: columns[0] ?? 'prompt',
  answer_field: columns[1] ?? columns[0] ?? 'answer',
  answer_after: '',
  answer_form: 'text',
});

/** @param {{name: string, share: number | null}} props */
function Progress({ name, share }) {
  const isSending = share !== null && share < 1;
  return html`<div class="dataset-progress" role="status">
    <progress value=${isSending ? share : undefined} aria-label=${`Upload of ${name}`}></progress>
    <span class="quiet">
      ${
        share === null
          ? 'Reading the first rows…'
          : isSending
            ? `${formatPercent(share)} of ${name} sent`
            : 'Checking every line…'
      }
    </span>
  </div>`;
}

/** The errors of a file, by line. @param {{name: string, error: Problem}} props */
function UploadError({ name, error }) {
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
