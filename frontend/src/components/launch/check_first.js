/** Checks a config before it is launched, in a run without steps, and shows the result in the form. */
import { html, useState } from '../../dom.js';
import { usePostOnce } from '../../data/post_once.js';
import { useGet } from '../../data/resource.js';
import { makeCheckRequest, makeContentKey } from '../../lib/launch/form.js';
import { CheckReport } from '../shared/check_report.js';
import { Select, Status } from '../shared/marks.js';
import { ForOperator } from '../shared/role.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('../../data/api.js').ApiError} ApiError */
/** @typedef {import('../../lib/launch/form.js').Form} Form */

/** Sections of a config that affect the result of a check. */
const CHECKED = ['policy', 'problems', 'data', 'sampling', 'length', 'rewards'];
const ENDED = ['finished', 'failed', 'stopped'];

/** @param {Api.Config | null | undefined} config */
const makeCheckedKey = (config) => makeContentKey(CHECKED.map((section) => lookup(config, section)));

/** Loads the run of the form's newest check, whose id is in the address. @param {string} id */
export const useCheck = (id) =>
  useGet(/** @type {'/runs/{run_id}'} */ (id ? `/runs/${encodeURIComponent(id)}` : null), undefined, {
    live: ['run'],
    concerns: (data) => data.id === id,
  });

/**
 * A checkbox to launch despite wrong references, shown if the form's check or the service found any.
 * @param {{ignoresCheck: boolean, check: Api.RunItem | undefined, failure: ApiError | null, onIgnore: (ignoresCheck: boolean) =>
 *   void}} props
 */
export function IgnoreCheck({ ignoresCheck, check, failure, onIgnore }) {
  const isRefused = failure?.errors.some(({ path }) => path === 'ignore_check');
  if (!ignoresCheck && !isRefused && !check?.check?.references.wrong) return null;
  return html`<label class="check">
    <input type="checkbox" checked=${ignoresCheck} onChange=${() => onIgnore(!ignoresCheck)} /> Launch even though reference answers
    are graded wrong
  </label>`;
}

/**
 * @param {{form: Form, fork: import('./fork.js').Fork | null, fulls: Api.Config[], isBlocked: boolean,
 *   check: ReturnType<typeof useCheck>, onCheck: (id: string) => void,
 *   onApply: import('../shared/check_report.js').Apply}} props
 */
export function CheckFirst({ form, fork, fulls, isBlocked, check, onCheck, onApply }) {
  const { variants } = form;
  const [name, setName] = useState('');
  const [failure, setFailure] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const postOnce = usePostOnce();
  const index = Math.max(
    0,
    variants.findIndex((variant) => variant.name === name),
  );
  const run = check.data;
  const isRunning = run !== undefined && !ENDED.includes(run.status);
  const start = async () => {
    setBusy(true);
    setFailure(null);
    try {
      // A repeated check of the same form is a new check, because a dataset or plugin may have been fixed.
      const request = { ...makeCheckRequest(form, index, fulls[index], fork), after: run?.id };
      const [checkRun] = await postOnce([request]);
      onCheck(checkRun.id);
    } catch (error) {
      setFailure(/** @type {ApiError} */ (error));
    }
    setBusy(false);
  };
  return html`<div class="check-first">
    <${ForOperator}>
      <div class="toolbar">
        <button
          type="button"
          class="button"
          disabled=${isBlocked || busy || isRunning || !variants.length}
          onClick=${start}
          title="Test the policy, the grader and the rewards on some problems; takes minutes and trains nothing"
        >
          Check first
        </button>
        ${
          variants.length > 1 &&
          html`<${Select}
            label="variant"
            value=${variants[index].name}
            options=${variants.map((variant) => variant.name)}
            onChange=${setName}
          />`
        }
      </div>
    <//>
    ${
      failure &&
      html`<p class="launch-failure" role="alert">
        ${failure.title}: ${failure.errors.map(({ message }) => message).join('; ') || failure.message}
      </p>`
    }
    ${
      check.error &&
      html`<p class="launch-failure" role="alert">
        The check is not available: ${check.error.message}
      </p>`
    }
    ${
      run &&
      html`<${Result}
        run=${run}
        isStale=${!fulls.some((full) => makeCheckedKey(full) === makeCheckedKey(run.config))}
        onApply=${onApply}
      />`
    }
  </div>`;
}

/**
 * @param {{run: Api.RunItem, isStale: boolean, onApply: import('../shared/check_report.js').Apply}} props
 */
function Result({ run, isStale, onApply }) {
  return html`<section aria-label="Check before launch">
    <p role="status">
      <${Status} run=${run} /> <a href=${`/run/${run.id}`}>${run.name}</a>
      ${run.status === 'queued' && ' waits for a worker.'}
    </p>
    ${run.status === 'failed' && html`<p class="launch-failure" role="alert">${run.reason}</p>`}
    ${isStale && run.check && html`<p class="form-help">The form has changed since this check.</p>`}
    ${run.check && html`<${CheckReport} report=${run.check} onApply=${onApply} />`}
  </section>`;
}
