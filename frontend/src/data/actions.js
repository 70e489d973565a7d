/** What can be done with runs, one or many, with a message about how it went and a way back where there is one. */
import { patch, post, remove } from './api.js';
import { say, sayError } from '../app/state.js';
import { plural } from '../lib/text/format.js';

/** How many calls are under way together: a long selection waits in the page rather than at the service. */
const AT_ONCE = 6;

/** @typedef {Api.RunItem} Run */

/** @template T @param {Run[]} runs @param {(run: Run) => Promise<T>} act */
async function settled(runs, act) {
  /** @type {PromiseSettledResult<T>[]} */
  const results = [];
  const rest = runs.entries();
  const work = async () => {
    for (const [at, run] of rest) [results[at]] = await Promise.allSettled([act(run)]);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return results;
}

/**
 * Does it to every run; those that were refused are named with the server's reason.
 * @template T
 * @param {Run[]} runs @param {(run: Run) => Promise<T>} act @param {string} done in words @param {() => void} [undo]
 */
async function each(runs, act, done, undo) {
  const results = await settled(runs, act);
  const failed = results.filter((result) => result.status === 'rejected');
  const count = runs.length - failed.length;
  if (failed.length) sayError(failed[0].reason);
  if (count) say(`${plural(count, 'run')} ${done}`, undo && { action: { label: 'Undo', run: undo } });
  return results
    .filter((result) => result.status === 'fulfilled')
    .map(({ value }) => value)
    .filter(Boolean);
}

/** @param {(run: Run) => void} onChange @returns {(changed: Run[]) => void} */
const refreshed = (onChange) => (changed) => {
  changed.forEach(onChange);
};

/** @param {Run[]} runs @param {(run: Run) => void} onChange called with each changed run */
export const stopRuns = (runs, onChange) =>
  each(runs, ({ id }) => post(`/runs/${id}/stop`), 'stopping').then(refreshed(onChange));

/** @param {Run[]} runs @param {boolean} archived @param {() => void} reload @returns {Promise<void>} */
export const archiveRuns = (runs, archived, reload) =>
  each(
    runs,
    ({ id }) => patch(`/runs/${id}`, { archived }),
    archived ? 'archived' : 'unarchived',
    () => archiveRuns(runs, !archived, reload),
  ).then(reload);

/**
 * To the trash; the way back is in the message.
 * @param {Run[]} runs @param {() => void} reload @returns {Promise<void>}
 */
export const deleteRuns = (runs, reload) =>
  each(
    runs,
    ({ id }) => remove(`/runs/${id}`),
    'moved to trash',
    () => restoreRuns(runs, reload),
  ).then(reload);

/** Out of the trash. @param {Run[]} runs @param {() => void} reload @returns {Promise<void>} */
export const restoreRuns = (runs, reload) =>
  each(runs, ({ id }) => post(`/runs/${id}/restore`), 'restored').then(reload);

/** Out of existence. @param {Run[]} runs @param {() => void} reload */
export const deleteForEver = (runs, reload) =>
  each(runs, ({ id }) => remove(`/runs/${id}`, { forever: true }), 'deleted permanently').then(reload);

/** Everything in the trash out of existence; what has to stay is named. @param {() => void} reload */
export async function emptyTrash(reload) {
  try {
    const { deleted, kept } = await remove('/runs', { forever: true });
    const stays = kept.map((/** @type {Api.KeptRun} */ { name, reason }) => `${name} stays: ${reason}`).join('; ');
    say(
      `${plural(deleted.length, 'run')} deleted permanently${stays && `. ${stays}`}`,
      stays ? { tone: 'error' } : undefined,
    );
  } catch (error) {
    sayError(error);
  }
  reload();
}

/** Adds a tag, or takes it away. @param {Run[]} runs @param {string} tag @param {(run: Run) => void} onChange */
export function tagRuns(runs, tag, onChange) {
  const has = runs.every(({ tags }) => tags.includes(tag));
  const next = (/** @type {string[]} */ tags) =>
    has ? tags.filter((old) => old !== tag) : [...new Set([...tags, tag])];
  return each(
    runs,
    ({ id, tags }) => patch(`/runs/${id}`, { tags: next(tags) }),
    has ? `no longer tagged ${tag}` : `tagged ${tag}`,
  ).then(refreshed(onChange));
}

/** @param {string} id @param {string} name @param {(run: Run) => void} onChange */
export async function renameRun(id, name, onChange) {
  try {
    onChange(await patch(`/runs/${id}`, { name }));
  } catch (error) {
    sayError(error);
  }
}

/** A name for a file that is nothing but a name, whatever a run is called. @param {string} text */
export const fileName = (text) => text.replace(/[^A-Za-z0-9_.-]+/g, '-').replace(/^[-.]+/, '') || 'file';

/** Offers a text as a file. @param {string} text @param {string} filename @param {string} type */
export function download(text, filename, type = 'text/csv') {
  const link = Object.assign(document.createElement('a'), {
    href: URL.createObjectURL(new Blob([text], { type })),
    download: fileName(filename),
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {string} text @param {string} what @returns {Promise<void>} */
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
  } catch {
    say(`Your browser blocked copying: ${text}`, { tone: 'error' });
  }
}
