/** What can be done with the selected runs and with the trash. */
import { html, useState } from '../../dom.js';
import { actOnRuns, emptyTrash } from '../../data/actions.js';
import { distinct } from '../../lib/runs/fields.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { Confirm, Dialog } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';

const STOPPABLE = ['queued', 'running', 'paused'];
const MOST_COMPARED = 200;

/**
 * @typedef {{ids: string[], runs: import('../../data/run_list.js').RunList, trash: boolean, archived: boolean,
 *   compare: (ids: string[]) => void, clear: () => void, selectMatching: (() => void) | null}} Bar
 *   `ids`: the selected runs, loaded or not; `trash`, `archived`: the list is one of those; `selectMatching`: selects
 *   those too that are not loaded, where there are any
 * @param {Bar} props
 */
export function SelectionBar(props) {
  const { ids, clear, selectMatching, runs } = props;
  return html`<div class="runs-tools selection-bar toolbar toolbar-tight" role="toolbar" aria-label="Selected runs">
    <b>${formatCount(ids.length)} selected</b>
    ${
      selectMatching &&
      html`<button class="button button-small" onClick=${selectMatching}>
        Select all ${formatCount(runs.total)}
      </button>`
    }
    ${props.trash ? html`<${TrashActions} ...${props} />` : html`<${Actions} ...${props} />`}
    <span class="spacer"></span>
    <button class="button-quiet" onClick=${clear}>
      Clear
    </button>
  </div>`;
}

/** @param {Bar} props */
function Actions({ ids, runs, archived, compare, clear }) {
  const [asking, ask] = useState('');
  const chosen = new Set(ids);
  const loaded = runs.items.filter(({ id }) => chosen.has(id));
  const stoppable = loaded.filter(({ status }) => STOPPABLE.includes(status)).length;
  const isAllLoaded = loaded.length === ids.length;
  const act = (/** @type {import('../../data/actions.js').Action} */ action) => {
    actOnRuns(action, ids, runs.reload);
    clear();
  };
  const stopped = isAllLoaded ? stoppable : ids.length;
  return html`
    <button
      class="button button-small button-primary"
      disabled=${ids.length > MOST_COMPARED}
      title=${ids.length > MOST_COMPARED ? `At most ${MOST_COMPARED} runs are compared` : undefined}
      onClick=${() => compare(ids)}
    >
      Compare
    </button>
    <${ForOperator}>
      <button class="button button-small" disabled=${!stopped} onClick=${() => ask('stop')}>
        Stop${isAllLoaded && stoppable && stoppable < ids.length ? ` ${stoppable}` : ''}
      </button>
      <button class="button button-small" onClick=${() => ask('tag')}>
        Tag
      </button>
      <button class="button button-small" onClick=${() => act(archived ? 'unarchive' : 'archive')}>
        ${archived ? 'Unarchive' : 'Archive'}
      </button>
      <button class="button button-small" onClick=${() => act('trash')}>
        Delete
      </button>
    <//>
    ${
      asking === 'stop' &&
      html`<${Confirm}
        title=${`Stop ${plural(stopped, 'run')}?`}
        confirm="Stop"
        onClose=${() => ask('')}
        onConfirm=${() => actOnRuns('stop', ids, runs.reload)}
        text="Running runs stop after the current step; queued runs leave the queue. Recorded data is kept."
      />`
    }
    ${asking === 'tag' && html`<${TagDialog} ids=${ids} loaded=${loaded} runs=${runs} onClose=${() => ask('')} />`}
  `;
}

/** What can be done in the trash. @param {Bar} props */
function TrashActions({ ids, runs, clear }) {
  const [asking, ask] = useState(false);
  const act = (/** @type {import('../../data/actions.js').Action} */ action) => {
    actOnRuns(action, ids, runs.reload);
    clear();
  };
  return html`
    <${ForOperator}>
      <button class="button button-small button-primary" onClick=${() => act('restore')}>
        Restore
      </button>
      <button class="button button-small button-danger" onClick=${() => ask(true)}>
        Delete permanently
      </button>
    <//>
    ${
      asking &&
      html`<${Confirm}
        title=${`Delete ${plural(ids.length, 'run')} permanently?`}
        confirm="Delete permanently"
        text=${GONE}
        onClose=${() => ask(false)}
        onConfirm=${() => act('delete')}
      />`
    }
  `;
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
 * @param {{ids: string[], loaded: Api.RunItem[], runs: import('../../data/run_list.js').RunList,
 *   onClose: () => void}} props `loaded`: those of the selected runs whose tags are known
 */
function TagDialog({ ids, loaded, runs, onClose }) {
  const [tag, setTag] = useState('');
  const others = distinct(runs.items, (run) => run.tags ?? []);
  const put = (/** @type {string} */ name) => {
    onClose();
    actOnRuns(hasAll(name) ? 'untag' : 'tag', ids, runs.reload, name);
  };
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (tag.trim()) put(tag.trim());
  };
  const hasAll = (/** @type {string} */ name) => loaded.length > 0 && loaded.every(({ tags }) => tags.includes(name));
  return html`<${Dialog} title=${`Tag ${plural(ids.length, 'run')}`} onClose=${onClose}>
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
