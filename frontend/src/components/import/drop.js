/** The area that accepts a log: a file, several files or a directory, chosen or dropped. */
import { html, useState } from '../../dom.js';
import { findLog } from '../../lib/tar.js';

/** One more than the service's limit, so that the service rejects the excess with a message. */
const MAX_FILES = 2_001;

/** @param {Iterable<File>} files @returns {import('../../lib/tar.js').PathOfFile[]} */
const withPaths = (files) => Array.from(files, (file) => ({ path: file.webkitRelativePath || file.name, file }));

/** @param {{log: import('../../lib/tar.js').Log | null, onChoose: (log: import('../../lib/tar.js').Log) => void}} props */
export function Drop({ log, onChoose }) {
  const [isOver, setIsOver] = useState(false);
  const choose = (/** @type {import('../../lib/tar.js').PathOfFile[]} */ files) => {
    if (files.length) onChoose(findLog(files));
  };
  const drop = async (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setIsOver(false);
    const items = [...(event.dataTransfer?.items ?? [])];
    const entries = items.map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
    choose(entries.length ? await listFiles(entries) : withPaths(event.dataTransfer?.files ?? []));
  };
  const input = (/** @type {string} */ label, /** @type {object} */ kind) => html`<input
    type="file"
    class="visually-hidden"
    aria-label=${label}
    ...${kind}
    onChange=${(event) => {
      choose(withPaths(event.target.files));
      event.target.value = '';
    }}
  />`;
  return html`<div
    class=${isOver ? 'import-drop is-over' : 'import-drop'}
    onDragOver=${(event) => {
      event.preventDefault();
      setIsOver(true);
    }}
    onDragLeave=${() => setIsOver(false)}
    onDrop=${drop}
  >
    <label class="import-choice">${input('Log to import', { multiple: true })} <b>${log ? log.name : 'Choose logs'}</b></label>
    <span class="quiet">
      ${log ? 'Choose or drop others, or ' : 'or drop files or a directory here, or '}
      <label class="import-choice">${input('Directory to import', { webkitdirectory: true })} <u>choose a directory</u></label>
    </span>
  </div>`;
}

/** Returns the dropped files and those in dropped directories. @param {FileSystemEntry[]} entries */
async function listFiles(entries) {
  const files = /** @type {import('../../lib/tar.js').PathOfFile[]} */ ([]);
  const queue = [...entries];
  while (queue.length && files.length < MAX_FILES) {
    const entry = /** @type {FileSystemEntry} */ (queue.shift());
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) =>
        /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject),
      );
      files.push({ path: entry.fullPath.replace(/^\//, ''), file });
    } else queue.push(...(await listEntries(/** @type {FileSystemDirectoryEntry} */ (entry))));
  }
  return files;
}

/** Returns all entries of a directory, which the browser reads in batches. @param {FileSystemDirectoryEntry} directory */
async function listEntries(directory) {
  const reader = directory.createReader();
  const entries = /** @type {FileSystemEntry[]} */ ([]);
  for (;;) {
    const batch = /** @type {FileSystemEntry[]} */ (
      await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
    );
    if (!batch.length || entries.length > MAX_FILES) return entries;
    entries.push(...batch);
  }
}
