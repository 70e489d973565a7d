/** What can be done with the selected runs and with the trash. */
import { html, useState } from '../../dom.js';
import {
  archiveRuns,
  deleteForEver,
  deleteRuns,
  emptyTrash,
  restoreRuns,
  stopRuns,
  tagRuns,
} from '../../data/actions.js';
import { distinct } from '../../lib/runs/fields.js';
import { plural } from '../../lib/text/format.js';
import { Confirm, Dialog } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

const STOPPABLE = ['queued', 'running', 'paused'];

/**
 * @param {{chosen: Api.RunItem[], runs: import('../../data/run_list.js').RunList, trash: boolean,
 *   compare: (ids: string[]) => void, clear: () => void}} props `trash`: the list is that of the trash
 */
export function SelectionBar({ chosen, runs, trash, compare, clear }) {
  const [asking, ask] = useState('');
  const stoppable = chosen.filter(({ status }) => STOPPABLE.includes(status));
  const isArchived = chosen.every(({ archived }) => archived);
  const done = (/** @type {() => void} */ action) => {
    action();
    clear();
  };
  if (trash) return html`<${TrashBar} chosen=${chosen} runs=${runs} clear=${clear} />`;
  return html`<div class="runs-tools selection-bar toolbar toolbar-tight" role="toolbar" aria-label="Selected runs">
    <b>${chosen.length} selected</b>
    <button class="button button-small button-primary" onClick=${() => compare(chosen.map(({ id }) => id))}>
      Compare
    </button>
    <${ForOperator}>
      <button class="button button-small" disabled=${!stoppable.length} onClick=${() => ask('stop')}>
        Stop${stoppable.length && stoppable.length < chosen.length ? ` ${stoppable.length}` : ''}
      </button>
      <button class="button button-small" onClick=${() => ask('tag')}>
        Tag
      </button>
      <button
        class="button button-small"
        onClick=${() => done(() => archiveRuns(chosen, !isArchived, runs.reload))}
      >
        ${isArchived ? 'Unarchive' : 'Archive'}
      </button>
      <button class="button button-small" onClick=${() => done(() => deleteRuns(chosen, runs.reload))}>
        Delete
      </button>
    <//>
    <span class="spacer"></span>
    <button class="button-quiet" onClick=${clear}>
      Clear
    </button>
    ${
      asking === 'stop' &&
      html`<${Confirm}
        title=${`Stop ${plural(stoppable.length, 'run')}?`}
        confirm="Stop"
        onClose=${() => ask('')}
        onConfirm=${() => stopRuns(stoppable, runs.put)}
        text="Running runs stop after the current step; queued runs leave the queue. Recorded data is kept."
      />`
    }
    ${asking === 'tag' && html`<${TagDialog} chosen=${chosen} runs=${runs} onClose=${() => ask('')} />`}
  </div>`;
}

/**
 * What can be done in the trash.
 * @param {{chosen: Api.RunItem[], runs: import('../../data/run_list.js').RunList, clear: () => void}} props
 */
function TrashBar({ chosen, runs, clear }) {
  const [asking, ask] = useState(false);
  const restore = () => {
    restoreRuns(chosen, runs.reload);
    clear();
  };
  return html`<div class="runs-tools selection-bar toolbar toolbar-tight" role="toolbar" aria-label="Selected runs">
    <b>${chosen.length} selected</b>
    <${ForOperator}>
      <button class="button button-small button-primary" onClick=${restore}>
        Restore
      </button>
      <button class="button button-small button-danger" onClick=${() => ask(true)}>
        Delete permanently
      </button>
    <//>
    <span class="spacer"></span>
    <button class="button-quiet" onClick=${clear}>
      Clear
    </button>
    ${
      asking &&
      html`<${Confirm}
        title=${`Delete ${plural(chosen.length, 'run')} permanently?`}
        confirm="Delete permanently"
        text=${GONE}
        onClose=${() => ask(false)}
        onConfirm=${() => {
          deleteForEver(chosen, runs.reload);
          clear();
        }}
      />`
    }
  </div>`;
}

const GONE = 'This deletes their curves, rollouts, events, output and checkpoints. It cannot be undone.';

/** All of the trash at once. @param {{runs: import('../../data/run_list.js').RunList}} props */
export function EmptyTrash({ runs }) {
  const [asking, ask] = useState(false);
  return html`
    <button class="button button-small button-danger" disabled=${!runs.items.length} onClick=${() => ask(true)}>
      Empty the trash
    </button>
    ${
      asking &&
      html`<${Confirm}
        title="Empty the trash?"
        confirm="Delete all permanently"
        text=${`${GONE} A run whose checkpoints other runs use is kept until those runs are deleted.`}
        onClose=${() => ask(false)}
        onConfirm=${() => emptyTrash(runs.reload)}
      />`
    }
  `;
}

/**
 * @param {{chosen: Api.RunItem[], runs: import('../../data/run_list.js').RunList, onClose: () => void}} props
 */
function TagDialog({ chosen, runs, onClose }) {
  const [tag, setTag] = useState('');
  const others = distinct(runs.items, (run) => run.tags ?? []);
  const put = (/** @type {string} */ name) => {
    onClose();
    tagRuns(chosen, name, runs.put);
  };
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (tag.trim()) put(tag.trim());
  };
  const hasAll = (/** @type {string} */ name) => chosen.every(({ tags }) => tags.includes(name));
  return html`<${Dialog} title=${`Tag ${plural(chosen.length, 'run')}`} onClose=${onClose}>
    <form onSubmit=${submit}>
      <input
        class="field wide"
        aria-label="Tag"
        placeholder="e.g. baseline"
        pattern="[\\s\\S]{0,64}"
        title="At most 64 characters"
        value=${tag}
        autofocus
        onInput=${(event) => setTag(event.target.value)}
      />
      ${
        others.length > 0 &&
        html`<p class="tag-choice">
          ${others.map(
            (name) => html`<button type="button" class="button button-small" key=${name} onClick=${() => put(name)}>
              ${hasAll(name) ? 'remove ' : ''}
              ${name}
            </button>`,
          )}
        </p>`
      }
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary" disabled=${!tag.trim()}>
          ${hasAll(tag.trim()) && tag.trim() ? 'Remove tag' : 'Tag'}
        </button>
      </footer>
    </form>
  <//>`;
}
