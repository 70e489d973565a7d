/** Actions of the table of runs that a run's own page offers too: tags, notes, archive, trash. */
import { html, useState } from '../../dom.js';
import { actOnRuns } from '../../data/actions.js';
import { ActionMenu } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';
import { TagDialog } from '../runs/tag_dialog.js';
import { NotesDialog } from './notes.js';

/** @param {{run: Api.RunItem, onChange: (run: Api.RunItem) => void, reload: () => void}} props */
export function MoreActions({ run, onChange, reload }) {
  const [asking, ask] = useState('');
  const close = () => ask('');
  const act = (/** @type {import('../../data/actions.js').Action} */ action) => actOnRuns(action, [run.id], reload);
  const items = [
    { label: 'Tags…', run: () => ask('tags') },
    { label: 'Notes…', run: () => ask('notes') },
    run.archived
      ? { label: 'Unarchive', run: () => act('unarchive') }
      : { label: 'Archive', run: () => act('archive') },
    ...(run.deleted ? [] : [{ label: 'Move to trash', run: () => act('trash') }]),
  ];
  return html`<${ForOperator}>
    <${ActionMenu} label="More" title="Tags, notes, archive, trash" items=${items} />
    ${
      asking === 'tags' &&
      html`<${TagDialog} ids=${[run.id]} loaded=${[run]} known=${run.tags} reload=${reload} onClose=${close} />`
    }
    ${asking === 'notes' && html`<${NotesDialog} run=${run} onChange=${onChange} onClose=${close} />`}
  <//>`;
}

/** @param {{run: Api.RunItem, reload: () => void}} props */
export function InTrash({ run, reload }) {
  return (
    run.deleted &&
    html`<p class="stale run-waiting" role="status">
      <${Icon} name="warn" /> <span>This run is in the trash.</span>
      <${ForOperator}>
        <button class="button button-small" onClick=${() => actOnRuns('restore', [run.id], reload)}>
          Restore
        </button>
      <//>
    </p>`
  );
}
