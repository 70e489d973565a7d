/** Actions on the selected runs and on the trash. */
import { html, useState } from '../../dom.js';
import { actOnRuns, emptyTrash } from '../../app/actions.js';
import { listDistinct } from '../../lib/runs/fields.js';
import { formatCount, plural } from '../../lib/text/format.js';
import { Confirm } from '../shared/overlay.js';
import { ForOperator } from '../shared/role.js';
import { TagDialog } from './tag_dialog.js';

const STOPPABLE = ['queued', 'running', 'paused'];
const MAX_COMPARED = 200;

/**
 * @typedef {{ids: string[], runs: import('../../data/run_list.js').RunList, trash: boolean, archived: boolean,
 *   compare: (ids: string[]) => void, clear: () => void, selectMatching: (() => void) | null}} Bar
 *   `ids`: the selected runs, loaded or not; `trash`, `archived`: the list is one of those; `selectMatching`: selects
 *   all matching runs, including those that are not loaded, or null if there are none
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
  const [openDialog, setOpenDialog] = useState('');
  const selectedIds = new Set(ids);
  const loadedRuns = runs.items.filter(({ id }) => selectedIds.has(id));
  const stoppable = loadedRuns.filter(({ status }) => STOPPABLE.includes(status)).length;
  const isAllLoaded = loadedRuns.length === ids.length;
  const act = (/** @type {import('../../app/actions.js').Action} */ action) => {
    actOnRuns(action, ids, runs.reload);
    clear();
  };
  const stoppableCount = isAllLoaded ? stoppable : ids.length;
  return html`
    <button
      class="button button-small button-primary"
      disabled=${ids.length > MAX_COMPARED}
      title=${ids.length > MAX_COMPARED ? `At most ${MAX_COMPARED} runs are compared` : undefined}
      onClick=${() => compare(ids)}
    >
      Compare selected
    </button>
    <${ForOperator}>
      <button class="button button-small" disabled=${!stoppableCount} onClick=${() => setOpenDialog('stop')}>
        Stop${isAllLoaded && stoppable && stoppable < ids.length ? ` ${stoppable}` : ''}
      </button>
      <button class="button button-small" onClick=${() => setOpenDialog('tag')}>
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
      openDialog === 'stop' &&
      html`<${Confirm}
        title=${`Stop ${plural(stoppableCount, 'run')}?`}
        confirm="Stop"
        onClose=${() => setOpenDialog('')}
        onConfirm=${() => actOnRuns('stop', ids, runs.reload)}
        text="Running runs stop after the current step; queued runs leave the queue. Recorded data is kept."
      />`
    }
    ${
      openDialog === 'tag' &&
      html`<${TagDialog}
        ids=${ids}
        loadedRuns=${loadedRuns}
        offeredTags=${listDistinct(runs.items, ({ tags }) => tags ?? [])}
        reload=${runs.reload}
        onClose=${() => setOpenDialog('')}
      />`
    }
  `;
}

/** The actions of the trash. @param {Bar} props */
function TrashActions({ ids, runs, clear }) {
  const [isAsking, setIsAsking] = useState(false);
  const act = (/** @type {import('../../app/actions.js').Action} */ action) => {
    actOnRuns(action, ids, runs.reload);
    clear();
  };
  return html`
    <${ForOperator}>
      <button class="button button-small button-primary" onClick=${() => act('restore')}>
        Restore
      </button>
      <button class="button button-small button-danger" onClick=${() => setIsAsking(true)}>
        Delete permanently
      </button>
    <//>
    ${
      isAsking &&
      html`<${Confirm}
        title=${`Delete ${plural(ids.length, 'run')} permanently?`}
        confirm="Delete permanently"
        text=${DELETE_WARNING}
        onClose=${() => setIsAsking(false)}
        onConfirm=${() => act('delete')}
      />`
    }
  `;
}

const DELETE_WARNING = 'This deletes their curves, rollouts, events, output and checkpoints. It cannot be undone.';

/** The button that empties the trash. @param {{runs: import('../../data/run_list.js').RunList}} props */
export function EmptyTrash({ runs }) {
  const [isAsking, setIsAsking] = useState(false);
  return html`
    <button class="button button-small button-danger" disabled=${!runs.items.length} onClick=${() => setIsAsking(true)}>
      Empty the trash
    </button>
    ${
      isAsking &&
      html`<${Confirm}
        title="Empty the trash?"
        confirm="Delete all permanently"
        text=${`${DELETE_WARNING} A run whose checkpoints other runs use is kept until those runs are deleted.`}
        onClose=${() => setIsAsking(false)}
        onConfirm=${() => emptyTrash(runs.reload)}
      />`
    }
  `;
}
