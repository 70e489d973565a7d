/** The dialog that describes a trial with its cost and starts it. */
import { html, useState } from '../../dom.js';
import { say } from '../../app/state.js';
import { post } from '../../data/api.js';
import { resync } from '../../data/live.js';
import { usePostOnce } from '../../data/post_once.js';
import { useLoad } from '../../data/resource.js';
import { describeChangedFields, changesText, hasList, placeErrors, readChanges } from '../../lib/trials.js';
import { formatBytes, formatCount, formatDurationRange, plural } from '../../lib/text/format.js';
import { NumberField } from '../shared/number_field.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';
import { Icon, IconButton } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';
import { useSettled } from '../shared/settled.js';

/** @typedef {{name: string, text: string}} Arm */
/** @typedef {{arms: Arm[] | null, seeds: string, steps: string}} Draft empty or null: the values of the plan */

const PAUSE_MS = 300;
const MAX_ARMS = 4;
const NOTHING = /** @type {Draft} */ ({ arms: null, seeds: '', steps: '' });

/**
 * @param {{run: Api.RunItem, cause?: string, isSearch?: boolean, look?: string}} props without a `cause`, the
 *   diagnosis has none; `isSearch`: the remedies of all causes are tried separately; `look`: classes of the button
 */
export function TryRemedy({ run, cause = '', isSearch = false, look = 'button button-small' }) {
  const title = isSearch ? 'Find a remedy' : cause ? 'Try the remedy' : 'Try a change';
  const [isOpen, setIsOpen] = useState(false);
  if (run.origin) return null;
  return html`<${ForOperator}>
    <button
      type="button"
      class=${look}
      onClick=${() => setIsOpen(true)}
      title=${
        isSearch
          ? 'Fork from before the onset, and try the remedies one by one until one heals'
          : 'Fork from before the onset, with and without the remedy, over several seeds'
      }
    >
      <${Icon} name="fork" size=${12} /> ${title}
    </button>
    ${
      isOpen &&
      html`<${TrialDialog} run=${run} cause=${cause} isSearch=${isSearch} title=${title} onClose=${() => setIsOpen(false)} />`
    }
  <//>`;
}

const isNumber = (/** @type {string} */ text) => /^\d{1,9}$/.test(text.trim());

/**
 * Returns the request of a draft, and the `errors` by field if it is invalid.
 * @param {Draft} draft @param {string} cause @param {boolean} isSearch
 */
function makeRequest({ arms, seeds, steps }, cause, isSearch) {
  const read = (arms ?? []).map(({ text }) => readChanges(text));
  const errors = new Map(
    read.flatMap(({ error }, i) => (error ? [/** @type {[string, string]} */ ([String(i), error])] : [])),
  );
  if (seeds && !isNumber(seeds)) errors.set('seeds', 'must be a whole number');
  if (steps && !isNumber(steps)) errors.set('steps', 'must be a whole number');
  const body = {
    cause,
    one_by_one: isSearch,
    ...(arms && { arms: arms.map(({ name }, i) => ({ name, changes: read[i].changes })) }),
    ...(seeds && { seeds: Number(seeds) }),
    ...(steps && { steps: Number(steps) }),
  };
  return { body, errors };
}

/** @param {{run: Api.RunItem, cause: string, isSearch: boolean, title: string, onClose: () => void}} props */
function TrialDialog({ run, cause, isSearch, title, onClose }) {
  const [draft, setDraft] = useState(NOTHING);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(/** @type {import('../../data/api.js').ApiError | null} */ (null));
  const postOnce = usePostOnce();
  const { body, errors: draftErrors } = makeRequest(draft, cause, isSearch);
  const content = JSON.stringify(body);
  const settledContent = useSettled(content, PAUSE_MS);
  const path = /** @type {const} */ (`/runs/${run.id}/trials/plan`);
  const plan = useLoad(
    draftErrors.size ? null : settledContent,
    (signal) => post(path, JSON.parse(settledContent), { signal }),
    { subject: 'plan' },
  );
  const planPreview = plan.data;
  const arms = draft.arms ?? planPreview?.arms.map(({ name, changes }) => ({ name, text: changesText(changes) })) ?? [];
  const requestError = failure ?? plan.error;
  const errors = new Map([...placeErrors(requestError?.errors ?? planPreview?.errors ?? []), ...draftErrors]);
  const change = (/** @type {Partial<Draft>} */ changes) => {
    setFailure(null);
    setDraft((old) => ({ ...old, ...changes }));
  };
  const isOld = settledContent !== content || plan.loading;
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await postOnce([{ path: `/runs/${run.id}/trials`, body }]);
      say(`Trial of ${run.name} started`);
      resync();
      onClose();
    } catch (error) {
      setFailure(/** @type {any} */ (error));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit} class="evaluate-form trial-form">
      ${
        planPreview &&
        html`
          <p>${planPreview.title && html`<b>${planPreview.title}.</b>`} ${planPreview.fork.words}</p>
          ${
            isSearch &&
            html`<p>
              One remedy is tried after the other. The search stops at the first with which
              ${planPreview.heals_in} of ${planPreview.seeds.length} runs stay healthy.
            </p>`
          }
          ${planPreview.notes.map((note) => html`<${Note} key=${note} words=${note} />`)}
          <${Arms}
            run=${run}
            arms=${arms}
            errors=${errors}
            onChange=${(/** @type {Arm[]} */ next) => change({ arms: next })}
          />
          <${NumberField}
            id="trial-seeds"
            label="Runs of each arm"
            help=${`Number of new seeds. Each seed is trained once in every arm, including the one without changes.`}
            value=${draft.seeds}
            placeholder=${String(planPreview.seeds.length)}
            error=${errors.get('seeds')}
            onChange=${(/** @type {string} */ seeds) => change({ seeds })}
          />
          <${NumberField}
            id="trial-steps"
            label="Last step"
            help=${`With the data up to step ${planPreview.alarm}, the diagnosis would already have reported the failure.`}
            value=${draft.steps}
            placeholder=${String(planPreview.steps)}
            error=${errors.get('steps')}
            onChange=${(/** @type {string} */ steps) => change({ steps })}
          />
          <${Price} plan=${planPreview} />
        `
      }
      ${
        requestError && !requestError.errors?.length
          ? html`<p class="field-error" role="alert">${requestError.message}</p>`
          : !planPreview && html`<p class="faint">Planning…</p>`
      }
      <${DialogButtons} onClose=${onClose} disabled=${busy || isOld || !planPreview || errors.size > 0}>
        ${planPreview ? `Start ${isSearch ? 'at most ' : ''}${plural(planPreview.price.runs, 'run')}` : 'Start'}
      <//>
    </form>
  <//>`;
}

/** @param {{words: string}} props */
const Note = ({ words }) => html`<p class="formula-warning"><${Icon} name="warn" size=${12} /> ${words}</p>`;

/**
 * @param {{run: Api.RunItem, arms: Arm[], errors: Map<string, string>, onChange: (arms: Arm[]) => void}} props
 */
function Arms({ run, arms, errors, onChange }) {
  const changeText = (/** @type {number} */ index, /** @type {string} */ text) =>
    onChange(arms.map((arm, i) => (i === index ? { ...arm, text } : arm)));
  return html`
    <p class="quiet">In addition to the runs without change:</p>
    ${arms.map(
      (arm, i) => html`<div class="trial-arm" key=${arm.name}>
        <label for=${`trial-arm-${i}`}>${arm.name}</label>
        <${IconButton}
          icon="cross"
          size=${12}
          label=${`Remove ${arm.name}`}
          onClick=${() => onChange(arms.filter((_, index) => index !== i))}
        />
        <${ArmText}
          id=${`trial-arm-${i}`}
          config=${run.config}
          text=${arm.text}
          isWrong=${errors.has(String(i))}
          onText=${(/** @type {string} */ text) => changeText(i, text)}
        />
        ${errors.has(String(i)) && html`<span class="field-error" role="alert">${errors.get(String(i))}</span>`}
      </div>`,
    )}
    ${errors.has('arms') && html`<p class="field-error" role="alert">${errors.get('arms')}</p>`}
    ${
      arms.length < MAX_ARMS &&
      html`<button
        type="button"
        class="button button-small"
        onClick=${() => onChange([...arms, { name: findFreeName(arms), text: '' }])}
      >
        <${Icon} name="plus" size=${12} /> Add a change to try
      </button>`
    }
  `;
}

/**
 * The changes of an arm. If a change replaces a list, its differences are shown above the text.
 * @param {{id: string, config: Api.RunItem['config'], text: string, isWrong: boolean,
 *   onText: (text: string) => void}} props
 */
function ArmText({ id, config, text, isWrong, onText }) {
  const [isFolded] = useState(() => hasList(text));
  const input = html`<textarea
    class="field"
    id=${id}
    rows=${Math.max(isFolded ? 6 : 2, text.split('\n').length)}
    spellcheck="false"
    placeholder="optimizer.lr: 0.0001"
    aria-invalid=${isWrong ? 'true' : undefined}
    value=${text}
    onInput=${(/** @type {any} */ event) => onText(event.target.value)}
  ></textarea>`;
  if (!isFolded) return input;
  const lines = describeChangedFields(config, readChanges(text).changes);
  return html`
    <div class="trial-changed">${lines.map((line) => html`<code key=${line}>${line}</code>`)}</div>
    <details class="trial-text">
      <summary>Edit</summary>
      ${input}
    </details>
  `;
}

/** Returns a name that no arm has. @param {Arm[]} arms */
const findFreeName = (arms) =>
  ['change 1', 'change 2', 'change 3', 'change 4'].find((name) => arms.every((arm) => arm.name !== name)) ?? 'change';

/** @param {{plan: Api.TrialPlanItem}} props */
function Price({ plan: { price, repeat_seed: seed } }) {
  const disk = price.disk_bytes + (price.checkpoint_bytes ?? 0);
  return html`<p class="trial-price" role="note" aria-label="Price">
    <b>${plural(price.runs, 'run')}, ${formatCount(price.steps)} steps in total</b>, one of them with the run's own
    seed ${seed}: it must repeat the run and is not counted. About
    ${' '}${formatDurationRange(price.seconds_low, price.seconds_high)} if they run one at a time, at most
    ${' '}${formatBytes(Math.round(disk))} of disk${price.checkpoint_bytes === null ? ' and the checkpoints' : ''}.
  </p>`;
}
