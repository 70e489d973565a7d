/** Actions that a run's own page shares with the table of runs: tags, notes, archive and trash. */
import { html } from '../../dom.js';
import { actOnRuns } from '../../app/actions.js';
import { useGet } from '../../data/resource.js';
import { isPushed } from '../../lib/runs/origin.js';
import { ActionMenu, Confirm } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';
import { TagDialog } from '../runs/tag_dialog.js';
import { NotesDialog } from './notes.js';

/**
 * @typedef {'' | 'tags' | 'notes' | 'trash'} Asked the open dialog
 * @param {{run: Api.RunItem, reload: () => void, openDialog: (what: Asked) => void}} props
 */
export function MoreActions({ run, reload, openDialog }) {
  const act = (/** @type {import('../../app/actions.js').Action} */ action) => actOnRuns(action, [run.id], reload);
  const items = [
    { label: 'Tags…', run: () => openDialog('tags') },
    { label: 'Notes…', run: () => openDialog('notes') },
    run.archived
      ? { label: 'Unarchive', run: () => act('unarchive') }
      : { label: 'Archive', run: () => act('archive') },
    ...(run.deleted
      ? []
      : [{ label: 'Move to trash', run: () => (run.status === 'running' ? openDialog('trash') : act('trash')) }]),
  ];
  return html`<${ForOperator}>
    <${ActionMenu} label="More" title="Tags, notes, archive, trash" items=${items} />
  <//>`;
}

/**
 * The requested dialog.
 * @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, reload: () => void, dialog: Asked,
 *   onClose: () => void}} props
 */
export function ActionDialog({ run, onChange, reload, dialog, onClose }) {
  if (dialog === 'notes') return html`<${NotesDialog} run=${run} onChange=${onChange} onClose=${onClose} />`;
  if (dialog === 'tags') return html`<${Tags} run=${run} reload=${reload} onClose=${onClose} />`;
  if (dialog === 'trash')
    return html`<${Confirm}
      title=${`Move ${run.name} to the trash?`}
      text=${
        isPushed(run)
          ? 'Its trainer is asked to stop. Restoring the run from the trash does not start the trainer again.'
          : 'The run stops after the current step. You can restore it from the trash and resume it.'
      }
      confirm="Move to trash"
      onConfirm=${() => actOnRuns('trash', [run.id], reload)}
      onClose=${onClose}
    />`;
  return null;
}

/** @param {{run: Api.RunItem, reload: () => void, onClose: () => void}} props */
function Tags({ run, reload, onClose }) {
  const fields = useGet('/run-fields');
  const tags = fields.data?.items.find(({ name }) => name === 'tag')?.values ?? run.tags;
  return html`<${TagDialog} ids=${[run.id]} loadedRuns=${[run]} offeredTags=${tags} reload=${reload} onClose=${onClose} />`;
}

/** @param {{run: Api.RunItem, reload: () => void}} props */
export function InTrash({ run, reload }) {
  return (
    run.deleted &&
    html`<p class="stale run-waiting">
      <${Icon} name="warn" /> <span role="status">This run is in the trash.</span>
      <${ForOperator}>
        <button class="button button-small" onClick=${() => actOnRuns('restore', [run.id], reload)}>
          Restore
        </button>
      <//>
    </p>`
  );
}
