/** Asks for an evaluation of a checkpoint: a run of its own that trains nothing. */
import { html, useState } from '../../dom.js';
import { usePostOnce } from '../../data/post_once.js';
import { Dialog } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

/** @typedef {import('../../data/api.js').ApiError} ApiError */

const FIELDS = [
  {
    name: 'prompts',
    label: 'Prompts',
    help: 'Held-out problems. The same number always selects the same problems.',
    initial: 64,
  },
  { name: 'k', label: 'Completions per prompt', help: 'The k in pass@k. 1 means one greedy completion.', initial: 1 },
];

/** @param {Api.RunItem} run @returns {Record<string, string>} */
const initially = (run) =>
  Object.fromEntries(FIELDS.map(({ name, initial }) => [name, String(run.config?.evaluation?.[name] ?? initial)]));

/** Errors of the server by field; what belongs to none stands above the buttons. @param {ApiError} error */
function placed(error) {
  const errors = error.errors?.length ? error.errors : [{ path: '', message: error.message }];
  const fieldOf = (/** @type {string} */ path) =>
    FIELDS.find(({ name }) => path.split('.').at(-1) === name)?.name ?? '';
  return new Map(errors.map(({ path, message }) => /** @type {const} */ ([fieldOf(path), message])));
}

const wholeNumber = (/** @type {string} */ written) => (/^\d+$/.test(written.trim()) ? Number(written) : written);

/** @param {{run: Api.RunItem, checkpoint: {step: number}}} props */
export function Evaluate({ run, checkpoint }) {
  const [open, setOpen] = useState(false);
  const [begun, setBegun] = useState(/** @type {Api.RunItem | null} */ (null));
  return html`<${ForOperator}>
    <span class="evaluate">
      <button
        type="button"
        class="button button-small"
        onClick=${() => setOpen(true)}
        title="Evaluate this checkpoint in a separate run"
      >
        Evaluate
      </button>
      ${
        begun &&
        html`
          ${' '}
          <a href=${`/run/${begun.id}`}>${begun.name ?? 'the evaluation'}</a>
        `
      }
      ${
        open &&
        html`<${EvaluateDialog}
          run=${run}
          step=${checkpoint.step}
          onClose=${() => setOpen(false)}
          onBegun=${(child) => {
            setBegun(child);
            setOpen(false);
          }}
        />`
      }
    </span>
  <//>`;
}

/**
 * @param {{run: Api.RunItem, step: number, onClose: () => void, onBegun: (child: Api.RunItem) => void}} props
 */
function EvaluateDialog({ run, step, onClose, onBegun }) {
  const [values, setValues] = useState(() => initially(run));
  const [effort, setEffort] = useState(false);
  const [errors, setErrors] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [busy, setBusy] = useState(false);
  const postOnce = usePostOnce();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const body = { step, effort, ...Object.fromEntries(FIELDS.map(({ name }) => [name, wholeNumber(values[name])])) };
      const [child] = await postOnce([{ path: `/runs/${run.id}/evaluations`, body }]);
      onBegun(child);
    } catch (error) {
      setErrors(placed(/** @type {ApiError} */ (error)));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Evaluate step ${step}`} onClose=${onClose}>
    <form onSubmit=${submit} class="evaluate-form">
      ${FIELDS.map(
        (field) => html`<${NumberField}
          key=${field.name}
          ...${field}
          value=${values[field.name]}
          error=${errors.get(field.name)}
          onChange=${(value) => setValues((old) => ({ ...old, [field.name]: value }))}
        />`,
      )}
      <label class="check">
        <input type="checkbox" checked=${effort} onChange=${() => setEffort(!effort)} /> Measure effort: cut the
        thinking short and force the answer
      </label>
      ${
        errors.has('') &&
        html`<p class="field-error" role="alert">
          ${errors.get('')}
        </p>`
      }
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary" disabled=${busy}>
          Evaluate
        </button>
      </footer>
    </form>
  <//>`;
}

/**
 * @param {{name: string, label: string, help: string, value: string, error?: string, onChange: (value: string) =>
 *   void}} props
 */
function NumberField({ name, label, help, value, error, onChange }) {
  return html`<div class="evaluate-field">
    <label for=${`evaluate-${name}`}>${label}</label>
    <input
      class="field"
      id=${`evaluate-${name}`}
      inputmode="numeric"
      value=${value}
      aria-invalid=${error ? 'true' : undefined}
      aria-describedby=${`evaluate-${name}-help`}
      onInput=${(event) => onChange(event.target.value)}
    />
    <span
      class=${error ? 'field-error' : 'faint'}
      id=${`evaluate-${name}-help`}
      role=${error ? 'alert' : undefined}
    >
      ${error ?? help}
    </span>
  </div>`;
}
