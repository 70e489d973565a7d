/** Rows of a new upload that repeat each other or the file's held-out rows, with buttons to leave them out. */
import { html, useState } from '../../dom.js';
import { post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { formatCount, plural } from '../../lib/text/format.js';

/** @type {[keyof Api.Repeats, string, string][]} */
const KINDS = [
  ['duplicates', 'duplicates', 'repeat a question'],
  ['near', 'near_duplicates', 'are near duplicates of another row'],
  ['contaminated', 'contamination', 'overlap with held-out rows of the file'],
];

/** @param {{sha256: string, onDrop: (field: string) => void}} props */
export function Repeats({ sha256, onDrop }) {
  const path = /** @type {'/datasets/{sha256}/repeats'} */ (`/datasets/${sha256}/repeats`);
  const { data, error } = useLoad(`repeats ${sha256}`, (signal) => post(path, undefined, { signal }));
  const [droppedNames, setDroppedNames] = useState(/** @type {string[]} */ ([]));
  if (error)
    return html`<p class="dataset-repeats quiet" role="status">
      Rows could not be compared: ${error.message}
    </p>`;
  if (!data)
    return html`<p class="dataset-repeats quiet" role="status">
      Comparing rows with one another…
    </p>`;
  const repeats = KINDS.filter(([key]) => Number(data[key]) > (key === 'near' ? data.duplicates : 0));
  const drop = (/** @type {string} */ name) => {
    setDroppedNames([...droppedNames, name]);
    onDrop(name);
  };
  return html`<div class="dataset-repeats" role="status">
    ${!repeats.length && html`<p class="quiet">No near duplicates among ${plural(data.rows, 'row')}.</p>`}
    <ul hidden=${!repeats.length}>
      ${repeats.map(
        ([key, name, words]) => html`<li key=${key}>
          ${formatCount(Number(data[key]))} of ${plural(data.rows, 'row')} ${words}${' '}
          ${
            droppedNames.includes(name)
              ? html`<span class="quiet">and will be left out</span>`
              : html`<button
                type="button"
                class="button-quiet"
                title=${`Sets data.${name} to drop`}
                onClick=${() => drop(name)}
              >
                Leave them out
              </button>`
          }
        </li>`,
      )}
    </ul>
    ${
      data.twins.length > 0 &&
      html`<details>
        <summary>Near duplicates</summary>
        <ul>
          ${data.twins.map(
            ({ line, other: twinLine, similarity }) => html`<li key=${line}>
              line ${line} is ${Math.floor(100 * similarity)} % like line ${twinLine}
            </li>`,
          )}
        </ul>
      </details>`
    }
  </div>`;
}
