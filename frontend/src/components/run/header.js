/** The header of a run's page: name, state and actions. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { post } from '../../data/api.js';
import { renameRun } from '../../app/actions.js';
import { runLook, sayError, status } from '../../app/state.js';
import { experimentAddress } from '../../lib/runs/addresses.js';
import { address } from '../../lib/url.js';
import { listMoves, reasonText, countSecondsLeft } from '../../lib/runs/moves.js';
import { formatCount, formatDuration } from '../../lib/text/format.js';
import { isEvaluation } from '../../lib/runs/fields.js';
import { isForeign, isPushed, isSilent, originTitle } from '../../lib/runs/origin.js';
import { VERDICTS, badgeText, verdictText } from '../../lib/runs/verdicts.js';
import { waitingText } from '../../lib/service/status.js';
import { Icon, IconButton } from '../shared/icons.js';
import { Progress, Status, Swatch, Tag } from '../shared/marks.js';
import { ForkLink } from './fork_link.js';
import { ActionDialog, InTrash, MoreActions } from './more_actions.js';
import { Notes } from './notes.js';
import { Confirm } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';
import { Ago } from '../shared/states.js';

const ICONS = { stop: 'stop', pause: 'pause', resume: 'play', retry: 'refresh' };

/** @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, reload: () => void}} props */
export function RunHeader({ run, onChange, reload }) {
  const [dialog, openDialog] = useState(/** @type {import('./more_actions.js').Asked} */ (''));
  return html`
    <div class="page-head run-head">
      <${Swatch} look=${runLook(run)} />
      <${Name} run=${run} onChange=${onChange} />
      <${Status} run=${run} />
      <${VerdictBadge} run=${run} />
      <${Advance} run=${run} />
      <span class="spacer"></span>
      <${Moves} run=${run} onChange=${onChange} />
      <${MoreActions} run=${run} reload=${reload} openDialog=${openDialog} />
    </div>
    <p class="run-line quiet">
      ${
        run.experiment &&
        html`<a href=${experimentAddress(run.experiment)}>
          ${run.experiment_name ?? 'experiment'}
        </a>`
      }
      <span>
        variant <b>${run.variant}</b>
      </span>
      <span>
        seed <b>${run.seed}</b>
      </span>
      ${
        run.parent_run &&
        html`<span>
          ${describeKinship(run)} <a href=${`/run/${run.parent_run}`}>${run.parent_name ?? 'parent run'}</a>
          ${run.fork_step !== null && ` at step ${run.fork_step}`}
        </span>`
      }
      ${
        run.origin &&
        html`<span class="run-origin">
          ${
            isPushed(run)
              ? `Pushed by ${originTitle(run.origin)}${run.writer ? `, writer ${run.writer}` : ''}`
              : html`Imported from ${originTitle(run.origin)} <code>${run.origin_file}</code>`
          }
        </span>`
      }
      <span>
        ${run.origin && !isPushed(run) ? 'imported' : 'created'} <${Ago} time=${run.created_at} />
      </span>
      ${run.tags?.map((tag) => html`<${Tag} key=${tag}>${tag}<//>`)}
    </p>
    <${Notes} run=${run} onEdit=${() => openDialog('notes')} />
    <${ActionDialog} run=${run} onChange=${onChange} reload=${reload} dialog=${dialog} onClose=${() => openDialog('')} />
    <${InTrash} run=${run} reload=${reload} />
    <${Reason} run=${run} />
    <${Waiting} run=${run.id} />
    <${Silent} run=${run} />
  `;
}

/** Verdict and onset, with a link to the diagnosis. @param {{run: Api.RunItem}} props */
function VerdictBadge({ run }) {
  if (!run.verdict) return null;
  const { icon, tone } = VERDICTS[run.verdict];
  return html`<a class=${`verdict-badge verdict-${tone}`} href=${`/run/${run.id}`} title=${verdictText(run)}>
    <${Icon} name=${icon} size=${12} />
    <span>${badgeText(run.verdict, run.onset)}</span>
  </a>`;
}

/** A notice while the trainer that pushes the run sends nothing. @param {{run: Api.RunItem}} props */
function Silent({ run }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
  return (
    isSilent(run) &&
    html`<p class="stale run-silent" role="status">
      <${Icon} name="warn" />
      <span>
        Its trainer was last heard from <${Ago} time=${run.seen_at} />. It has ended, or it cannot reach this service
        and will send everything later.
      </span>
    </p>`
  );
}

/** @typedef {{run: Api.RunItem, onChange: (run: Api.RunItem) => void}} Props */

/** A notice while the run's steps cannot be stored. @param {{run: string}} props */
function Waiting({ run }) {
  const text = waitingText(status.value, run);
  return (
    text &&
    html`<p class="stale run-waiting" role="status">
      <${Icon} name="warn" /> <span>${text}</span>
    </p>`
  );
}

/** Returns the relation between a run and its parent in words. */
const describeKinship = (/** @type {Api.RunItem} */ run) =>
  run.fork_step === null ? 'clone of' : run.is_check ? 'checks a fork of' : isEvaluation(run) ? 'evaluates' : 'fork of';

/** The name, which becomes a field after a click on the pencil. @param {Props} props */
function Name({ run, onChange }) {
  const [isEditing, setIsEditing] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (isEditing) field.current?.select();
  }, [isEditing]);
  if (!isEditing) {
    return html`
      <h1 class="run-name">${run.name}</h1>
      <${ForOperator}>
        <${IconButton} icon="pencil" size=${14} label="Rename" title="Rename" onClick=${() => setIsEditing(true)} />
      <//>
    `;
  }
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!field.current?.reportValidity()) return;
    setIsEditing(false);
    const name = field.current.value.trim();
    if (name && name !== run.name) renameRun(run.id, name, onChange);
  };
  return html`<form onSubmit=${save}>
    <input
      class="field run-name-field"
      ref=${field}
      aria-label="Name of the run"
      pattern="[\\s\\S]{0,200}"
      title="At most 200 characters"
      defaultValue=${run.name}
      onBlur=${save}
      onKeyDown=${(event) => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          setIsEditing(false);
        }
      }}
    />
  </form>`;
}

/** @param {{run: Api.RunItem}} props */
function Advance({ run }) {
  if (isEvaluation(run))
    return html`<span class="quiet" title="Evaluates a policy without training it">
      ${run.is_check ? 'check' : 'evaluation'}
    </span>`;
  const seconds = countSecondsLeft(run);
  return html`<span class="run-advance">
    <${Progress} doneSteps=${run.last_step} all=${run.steps} />
    <span class="quiet">
      step ${formatCount(run.last_step)} of ${formatCount(run.steps)}
      ${seconds !== null && ` · ${formatDuration(seconds)} left`}
    </span>
  </span>`;
}

/** @param {Props} props */
function Moves({ run, onChange }) {
  const [isAsking, setIsAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const act = async (/** @type {import('../../lib/runs/moves.js').Move} */ move) => {
    setBusy(true);
    try {
      onChange(await post(`/runs/${run.id}/${move}`));
    } catch (error) {
      sayError(error);
    }
    setBusy(false);
  };
  const confirmText = isPushed(run)
    ? isSilent(run)
      ? 'Its trainer is silent: the run ends here at once. If the trainer comes back, it is asked to stop.'
      : run.requested_action
        ? 'Its trainer was asked to stop and still pushes: the run ends here at once. What arrives later is stored.'
        : 'Its trainer is asked to stop after the current step. It cannot be resumed from here.'
    : run.status === 'running'
      ? 'The run stops after the current step and saves a checkpoint. You can resume it later.'
      : 'The run stops. You can resume it later.';
  return html`<div class="toolbar">
    <${ForOperator}>
      ${listMoves(run).map(
        ({ move, label }) => html`<button
          type="button"
          class=${move === 'stop' ? 'button button-danger' : 'button'}
          key=${move}
          disabled=${busy}
          onClick=${() => (move === 'stop' ? setIsAsking(true) : act(move))}
        >
          <${Icon} name=${ICONS[move]} size=${12} /> ${label}
        </button>`,
      )}
    <//>
    ${
      !isForeign(run) &&
      html`<a class="button" href=${address('/launch', { from: run.id })} title="Launch a copy, with changes">
        <${Icon} name="copy" size=${12} /> Clone
      </a>`
    }
    ${!isForeign(run) && !isEvaluation(run) && run.last_step > 0 && html`<${ForkLink} run=${run} />`}
    ${
      isAsking &&
      html`<${Confirm}
        title=${`Stop ${run.name}?`}
        text=${confirmText}
        confirm="Stop"
        onConfirm=${() => act('stop')}
        onClose=${() => setIsAsking(false)}
      />`
    }
  </div>`;
}

const FAILED_ELSEWHERE = { title: 'Run failed', next: '' };
const FAILED = { title: 'Run failed', next: 'Retry continues from the latest checkpoint.' };
const DISK_FULL = {
  title: 'Run paused: the checkpoint could not be saved',
  next: 'After you fix the disk, Resume continues from the latest checkpoint.',
};

/** The reason for the run's state, which is highlighted if it needs attention. @param {{run: Api.RunItem}} props */
function Reason({ run }) {
  if (!run.reason) return null;
  const failed = run.origin ? FAILED_ELSEWHERE : FAILED;
  const trouble =
    run.status === 'failed' ? failed : run.status === 'paused' && run.reason.startsWith('disk: ') ? DISK_FULL : null;
  if (!trouble)
    return html`<p class="quiet run-reason">
      ${run.status}: ${reasonText(run.reason)}
    </p>`;
  return html`<div class="run-failure" role="alert">
    <${Icon} name="warn" />
    <div>
      <strong>${trouble.title}</strong>
      <pre>${reasonText(run.reason)}</pre>
      ${
        !isForeign(run) &&
        html`<p class="quiet">
        Recorded data is kept. See the <a href=${`/run/${run.id}?tab=log`}>log</a> for the trainer's last output.${' '}
        ${trouble.next}
      </p>`
      }
    </div>
  </div>`;
}
