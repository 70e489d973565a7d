/** Packs several files as one log: a tar archive whose contents are read only when it is sent. Pure. */

const BLOCK = 512;
const LONGEST_NAME = 100;
const LONGEST_PREFIX = 155;
const SLASH = 47;
const WEIGHTS = /\.(safetensors|bin|pt|pth|ckpt|gguf|npz|so)$/;
const ROLLOUTS = /_\d+\.pt$/;

/**
 * @typedef {{path: string, file: Blob}} PathOfFile
 * @typedef {{name: string, content: Blob}} Log
 */

/**
 * Returns the log to import: a single file, or an archive of several files without weights.
 * @param {PathOfFile[]} files at least one @returns {Log}
 */
export function findLog(files) {
  const logs = files.filter(({ path }) => !WEIGHTS.test(path) || ROLLOUTS.test(path));
  const [first] = files;
  const [top, ...below] = first.path.split('/');
  if (files.length === 1 && !below.length) return { name: top, content: first.file };
  const isDirectory = files.every(({ path }) => path.startsWith(`${top}/`));
  const name = isDirectory ? top : `${top} and ${files.length - 1} more`;
  return { name, content: makeArchive(logs.length ? logs : files) };
}

/** @param {PathOfFile[]} files @returns {Blob} */
export function makeArchive(files) {
  const blocks = files.flatMap(({ path, file }) => [
    makeHeader(path, file.size),
    file,
    new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK),
  ]);
  return new Blob([...blocks, new Uint8Array(2 * BLOCK)]);
}

/** Returns the header of a file in the ustar format of POSIX. @param {string} path @param {number} size */
function makeHeader(path, size) {
  const header = new Uint8Array(BLOCK);
  const write = (/** @type {number} */ offset, /** @type {string} */ text) =>
    header.set(new TextEncoder().encode(text), offset);
  const [prefix, name] = splitPath(new TextEncoder().encode(path));
  header.set(name, 0);
  write(100, '0000644\0' + '0000000\0'.repeat(2) + `${size.toString(8).padStart(11, '0')} ` + '00000000000 ');
  write(148, '        0');
  write(257, 'ustar\x0000');
  header.set(prefix, 345);
  const sum = header.reduce((total, byte) => total + byte, 0);
  write(148, `${sum.toString(8).padStart(6, '0')}\0 `);
  return header;
}

/** Returns the directory and the name of a path in bytes, or the end of a longer path. @param {Uint8Array} path */
function splitPath(path) {
  if (path.length <= LONGEST_NAME) return [new Uint8Array(), path];
  const splitIndex = path.indexOf(SLASH, path.length - LONGEST_NAME - 1);
  if (splitIndex < 0) return [new Uint8Array(), path.slice(-LONGEST_NAME)];
  return [path.slice(Math.max(0, splitIndex - LONGEST_PREFIX), splitIndex), path.slice(splitIndex + 1)];
}
