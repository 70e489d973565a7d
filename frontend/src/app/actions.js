/** Actions on one or many runs. Each shows a message with its result, with a button to undo it if that is possible. */
import { patch, post, remove } from '../data/api.js';
import { say, sayError } from './state.js';
import { plural } from '../lib/text/format.js';

/** @typedef {Api.RunItem} Run */
/** @typedef {'tag' | 'untag' | 'archive' | 'unarchive' | 'stop' | 'trash' | 'restore' | 'delete'} Action */

/** Maximum number of runs in one request. The service processes them in batches. */
const MAX_PER_CALL = 10_000;

/** @type {Record<Action, (tag: string) => string>} */
const DONE = {
  tag: (tag) => `tagged ${tag}`,
  untag: (tag) => `no longer tagged ${tag}`,
  archive: () => 'archived',
  unarchive: () => 'unarchived',
  stop: () => 'stopping',
  trash: () => 'moved to trash',
  restore: () => 'restored',
  delete: () => 'deleted permanently',
};
/** @type {Partial<Record<Action, Action>>} */
const OPPOSITE = {
  tag: 'untag',
  untag: 'tag',
  archive: 'unarchive',
  unarchive: 'archive',
  trash: 'restore',
  restore: 'trash',
};

/**
 * Applies an action to runs and shows how many were changed, how many were refused, and why. The message offers to undo
 * the action, for exactly the runs that were changed.
 * @param {Action} action @param {string[]} ids @param {() => void} reload @param {string} [tag]
 * @returns {Promise<void>}
 */
export async function actOnRuns(action, ids, reload, tag = '') {
  /** @type {string[]} */
  const changedIds = [];
  /** @type {Api.KeptRun[]} */
  const refusals = [];
  let missingCount = 0;
  const opposite = OPPOSITE[action];
  const undo = opposite && { label: 'Undo', run: () => actOnRuns(opposite, changedIds, reload, tag) };
  const doneText = () => `${plural(changedIds.length, 'run')} ${DONE[action](tag)}`;
  try {
    for (let first = 0; first < ids.length; first += MAX_PER_CALL) {
      const result = await post('/runs/actions', { action, tag, ids: ids.slice(first, first + MAX_PER_CALL) });
      changedIds.push(...result.changed);
      refusals.push(...result.refused);
      missingCount += result.missing;
    }
    if (refusals.length) say(`${plural(refusals.length, 'run')} refused: ${refusals[0].reason}`, { tone: 'error' });
    const missingText = missingCount ? `; ${plural(missingCount, 'run')} no longer there` : '';
    const unchangedText = changedIds.length || refusals.length ? '' : ': all had it already';
    say(doneText() + unchangedText + missingText, changedIds.length ? { action: undo } : undefined);
  } catch (error) {
    sayError(error);
    if (changedIds.length) say(doneText(), { action: undo });
  }
  reload();
}

/** Deletes all runs in the trash. A message names the runs that cannot be deleted. @param {() => void} reload */
export async function emptyTrash(reload) {
  try {
    const { deleted, kept: refusedRuns } = await remove('/runs', { forever: true });
    const refusedText = refusedRuns
      .map((/** @type {Api.KeptRun} */ { name, reason }) => `${name} stays: ${reason}`)
      .join('; ');
    say(
      `${plural(deleted.length, 'run')} deleted permanently${refusedText && `. ${refusedText}`}`,
      refusedText ? { tone: 'error' } : undefined,
    );
  } catch (error) {
    sayError(error);
  }
  reload();
}

/** @param {string} id @param {string} name @param {(run: Run) => void} onChange */
export async function renameRun(id, name, onChange) {
  try {
    onChange(await patch(`/runs/${id}`, { name }));
  } catch (error) {
    sayError(error);
  }
}

/** Returns a safe file name for any text, for example the name of a run. @param {string} text */
export const fileName = (text) => text.replace(/[^A-Za-z0-9_.-]+/g, '-').replace(/^[-.]+/, '') || 'file';

/** Downloads a text as a file. @param {string} text @param {string} filename @param {string} type */
export const download = (text, filename, type = 'text/csv') => downloadBlob(new Blob([text], { type }), filename);

/** Downloads a file. @param {Blob} blob @param {string} filename */
export function downloadBlob(blob, filename) {
  const link = Object.assign(document.createElement('a'), {
    href: URL.createObjectURL(blob),
    download: fileName(filename),
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {string} text @param {string} subject @returns {Promise<void>} */
export async function copyText(text, subject) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${subject} copied`);
  } catch {
    say(`Your browser blocked copying: ${text}`, { tone: 'error' });
  }
}
