/** The dialog that starts evaluations of checkpoints. Each evaluation is a run without training. */
import { html, useState } from '../../dom.js';
import { usePostOnce } from '../../data/post_once.js';
import { useGet } from '../../data/resource.js';
import { NumberField } from '../shared/number_field.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('../../data/api.js').ApiError} ApiError */

const FIELDS = [
  {
    name: 'prompts',
    label: 'Prompts',
    help: 'Held-out prompts. The same number always selects the same prompts.',
    initial: 64,
  },
  { name: 'k', label: 'Completions per prompt', help: 'The k in pass@k. 1 means one greedy completion.', initial: 1 },
];

/** @param {Api.RunItem} run @returns {Record<string, string>} */
const makeInitialValues = (run) =>
  Object.fromEntries(
    FIELDS.map(({ name, initial }) => [name, String(lookup(run.config?.evaluation, name) ?? initial)]),
  );

/** Returns the server's errors by field. Errors without a field are shown above the buttons. @param {ApiError} error */
function placeError(error) {
  const errors = error.errors?.length ? error.errors : [{ path: '', message: error.message }];
  const findField = (/** @type {string} */ path) =>
    FIELDS.find(({ name }) => path.split('.').at(-1) === name)?.name ?? '';
  return new Map(
    errors.map(({ path, message }) => {
      const field = path.startsWith('suites') || path.includes('.suites.') ? '' : findField(path);
      return /** @type {const} */ ([field, field || !path ? message : `${path} ${message}`]);
    }),
  );
}

const parseWholeNumber = (/** @type {string} */ text) => (/^\d+$/.test(text.trim()) ? Number(text) : text);

/**
 * @param {{run: Api.RunItem, steps: number[], label?: string}} props `steps`: those of the offered checkpoints; a
 *   single one is preselected
 */
export function Evaluate({ run, steps, label = 'Evaluate' }) {
  const [isOpen, setIsOpen] = useState(false);
  const [begun, setBegun] = useState(/** @type {Api.RunItem[]} */ ([]));
  return html`<${ForOperator}>
    <span class="evaluate">
      <button
        type="button"
        class="button button-small"
        onClick=${() => setIsOpen(true)}
        title=${steps.length > 1 ? 'Each is evaluated in a separate run' : 'Evaluate this checkpoint in a separate run'}
      >
        ${label}
      </button>
      ${begun.map(
        (child) => html`
          ${' '}
          <a key=${child.id} href=${`/run/${child.id}`}>${child.name ?? 'the evaluation'}</a>
        `,
      )}
      ${
        isOpen &&
        html`<${EvaluateDialog}
          run=${run}
          steps=${steps}
          onClose=${() => setIsOpen(false)}
          onBegun=${(children) => {
            setBegun(children);
            setIsOpen(false);
          }}
        />`
      }
    </span>
  <//>`;
}

/** Returns the suites to choose from: those of the run, then benchmarks. @param {Api.RunItem} run */
function useSuites(run) {
  /** @type {{name: string}[]} */
  const runSuites = run.config?.evaluation?.suites ?? [];
  const recipes = useGet('/suite-recipes').data?.items ?? [];
  const benchmarks = recipes.filter(({ name }) => !runSuites.some((suite) => suite.name === name));
  return [
    ...runSuites.map((suite) => ({ name: suite.name, title: suite.name, note: 'A suite of this run', suite })),
    ...benchmarks.map(({ name, title, note, config }) => ({ name, title, note, suite: config.suite })),
  ];
}

/**
 * @param {{run: Api.RunItem, steps: number[], onClose: () => void, onBegun: (children: Api.RunItem[]) => void}} props
 */
function EvaluateDialog({ run, steps, onClose, onBegun }) {
  const suites = useSuites(run);
  const [values, setValues] = useState(() => makeInitialValues(run));
  const [chosenSteps, setChosenSteps] = useState(steps.slice(0, 1));
  const [chosenNames, setChosenNames] = useState(/** @type {string[]} */ ([]));
  const [heldOut, setHeldOut] = useState(true);
  const [effort, setEffort] = useState(false);
  const [errors, setErrors] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [busy, setBusy] = useState(false);
  const postOnce = usePostOnce();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const body = {
        effort: effort && heldOut,
        held_out: heldOut,
        suites: suites.filter(({ name }) => chosenNames.includes(name)).map(({ suite }) => suite),
        ...(heldOut
          ? Object.fromEntries(FIELDS.map(({ name }) => [name, parseWholeNumber(lookup(values, name))]))
          : {}),
      };
      const path = `/runs/${run.id}/evaluations`;
      onBegun(await postOnce(chosenSteps.map((step) => ({ path, body: { step, ...body } }))));
    } catch (error) {
      setErrors(placeError(/** @type {ApiError} */ (error)));
      setBusy(false);
    }
  };
  const title = steps.length > 1 ? 'Evaluate checkpoints' : `Evaluate step ${steps[0]}`;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit} class="evaluate-form">
      ${
        steps.length > 1 &&
        html`<${Choices}
          legend="Checkpoints"
          options=${steps.map((step) => ({ key: step, title: `step ${step}` }))}
          chosenKeys=${chosenSteps}
          onChange=${setChosenSteps}
        />`
      }
      <${Choices}
        legend="Suites"
        options=${suites.map(({ name, title: text, note }) => ({ key: name, title: text, note }))}
        chosenKeys=${chosenNames}
        onChange=${setChosenNames}
      />
      <label class="check">
        <input type="checkbox" checked=${heldOut} onChange=${() => setHeldOut(!heldOut)} /> Held-out set
      </label>
      ${
        heldOut &&
        FIELDS.map(
          ({ name, label, help }) => html`<${NumberField}
            key=${name}
            id=${`evaluate-${name}`}
            label=${label}
            help=${help}
            value=${lookup(values, name)}
            error=${errors.get(name)}
            onChange=${(value) => setValues((old) => ({ ...old, [name]: value }))}
          />`,
        )
      }
      ${
        heldOut &&
        html`<label class="check">
          <input type="checkbox" checked=${effort} onChange=${() => setEffort(!effort)} /> Measure effort: cut the
          thinking short and force the answer
        </label>`
      }
      ${
        errors.has('') &&
        html`<p class="field-error" role="alert">
          ${errors.get('')}
        </p>`
      }
      <${DialogButtons} onClose=${onClose} disabled=${busy || !chosenSteps.length || (!heldOut && !chosenNames.length)}>
        Evaluate
      <//>
    </form>
  <//>`;
}

/**
 * @template {string | number} T
 * @param {{legend: string, options: {key: T, title: string, note?: string}[], chosenKeys: T[], onChange: (chosen: T[])
 *   => void}} props
 */
function Choices({ legend, options, chosenKeys, onChange }) {
  const toggle = (/** @type {T} */ key) =>
    onChange(chosenKeys.includes(key) ? chosenKeys.filter((chosenKey) => chosenKey !== key) : [...chosenKeys, key]);
  return html`<fieldset class="evaluate-choices">
    <legend>${legend}</legend>
    ${options.map(
      ({ key, title, note }) => html`<label class="check" key=${key} title=${note}>
        <input type="checkbox" checked=${chosenKeys.includes(key)} onChange=${() => toggle(key)} /> ${title}
      </label>`,
    )}
  </fieldset>`;
}
