/** Asks for an evaluation of a checkpoint: a run of its own that trains nothing. */
import { html, useState } from '../../dom.js';
import { usePostOnce } from '../../data/post_once.js';
import { Dialog } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

const FIELDS = [
  {
    name: 'prompts',
    label: 'Prompts',
    help: 'Held-out problems. The same number always selects the same problems.',
    initial: 64,
  },
  { name: 'k', label: 'Completions per prompt', help: 'The k in pass@k. 1 means one greedy completion.', initial: 1 },
];

const initially = (run) =>
  Object.fromEntries(FIELDS.map(({ name, initial }) => [name, String(run.config?.evaluation?.[name] ?? initial)]));

/** Errors of the server by field; what belongs to none stands above the buttons. */
function placed(error) {
  const errors = error.errors?.length ? error.errors : [{ path: '', message: error.message }];
  const fieldOf = (path) => FIELDS.find(({ name }) => path.split('.').at(-1) === name)?.name ?? '';
  return new Map(errors.map(({ path, message }) => [fieldOf(path), message]));
}

const wholeNumber = (written) => (/^\d+$/.test(written.trim()) ? Number(written) : written);

/** @param {{run: any, checkpoint: {step: number}}} props */
export function Evaluate({ run, checkpoint }) {
  const [open, setOpen] = useState(false);
  const [begun, setBegun] = useState(null);
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

function EvaluateDialog({ run, step, onClose, onBegun }) {
  const [values, setValues] = useState(() => initially(run));
  const [errors, setErrors] = useState(new Map());
  const [busy, setBusy] = useState(false);
  const postOnce = usePostOnce();
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const body = { step, ...Object.fromEntries(FIELDS.map(({ name }) => [name, wholeNumber(values[name])])) };
      const [child] = await postOnce([{ path: `/runs/${run.id}/evaluations`, body }]);
      onBegun(child);
    } catch (error) {
      setErrors(placed(error));
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
