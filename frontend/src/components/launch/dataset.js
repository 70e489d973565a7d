/** The choice of a problem's dataset, which is one of this installation or a new upload. */
import { html, useId, useState } from '../../dom.js';
import { get, remove } from '../../data/api.js';
import { sayError } from '../../app/state.js';
import { useLoad } from '../../data/resource.js';
import { formatBytes, plural } from '../../lib/text/format.js';
import { Row } from './row.js';
import { Repeats } from './repeats.js';
import { Upload } from './upload.js';
import { Confirm } from '../shared/overlay.js';
import { IconButton } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';

/** @typedef {Api.DatasetItem} Dataset */
/** @typedef {Api.ColumnMapping} Mapping */

/** @param {Dataset} dataset */
const formatLabel = ({ name, rows, bytes }) =>
  `${name} · ${rows === null ? '' : `${plural(rows, 'row')}, `}${formatBytes(bytes)}`;

/**
 * @param {{field: import('../../lib/launch/schema.js').Field, value: string, layer: import('./row.js').Layer,
 *   label: string}} props
 */
export function DatasetField({ field, value, layer, label }) {
  const id = useId();
  const list = useLoad('datasets', (signal) => get('/datasets', undefined, signal));
  const items = list.data?.items ?? [];
  const chosenItem = items.find(({ path }) => path === value);
  const [uploadedPath, setUploadedPath] = useState(layer.uploaded ?? '');
  const source = layer.item?.problem ?? layer.item;
  const setDataset = (/** @type {string} */ path, /** @type {Mapping | null | undefined} */ mapping) =>
    layer.onChange(field.path.replace(/\.path$/, ''), { ...source, ...mapping, path });
  const choose = (/** @type {string} */ path) => setDataset(path, items.find((item) => item.path === path)?.mapping);
  const errorsAt = value ? layer.errorsAt : () => [];
  return html`<${Row} field=${field} layer=${{ ...layer, errorsAt }} label=${label} id=${id} wide>
    <div class="dataset">
      <span class="select">
        <select
          id=${id}
          value=${value ?? ''}
          onChange=${(event) => choose(event.target.value)}
          aria-describedby=${`${id}-help`}
        >
          ${
            !chosenItem &&
            html`<option value=${value ?? ''} selected>
              ${value || (list.data && !items.length ? 'No datasets yet' : 'Choose a dataset')}
            </option>`
          }
          ${items.map(
            (item) => html`<option key=${item.path} value=${item.path} selected=${item === chosenItem}>
              ${formatLabel(item)}
            </option>`,
          )}
        </select>
      </span>
      <${ForOperator}>
        <${Upload}
          maxBytes=${list.data?.max_bytes}
          onDone=${(/** @type {Dataset} */ { path, mapping }) => {
            list.reload();
            setDataset(path, mapping);
            setUploadedPath(path);
          }}
        />
        ${
          chosenItem?.sha256 &&
          html`<${Delete}
            dataset=${chosenItem}
            onDone=${() => {
              list.reload();
              choose('');
            }}
          />`
        }
        ${
          chosenItem?.sha256 &&
          chosenItem.path === uploadedPath &&
          html`<${Repeats}
            key=${chosenItem.sha256}
            sha256=${chosenItem.sha256}
            onDrop=${(/** @type {string} */ name) => layer.onChange(`data.${name}`, 'drop')}
          />`
        }
      <//>
    </div>
    ${
      list.error &&
      html`<p class="form-errors" role="alert">
        ${list.error.message}
      </p>`
    }
  <//>`;
}

/** @param {{dataset: Dataset, onDone: () => void}} props */
function Delete({ dataset, onDone }) {
  const [isAsking, setIsAsking] = useState(false);
  const go = () => remove(`/datasets/${dataset.sha256}`).then(onDone, sayError);
  return html`
    <${IconButton} icon="trash" label="Delete this upload" title="Delete this upload" onClick=${() => setIsAsking(true)} />
    ${
      isAsking &&
      html`<${Confirm}
        title="Delete this upload?"
        confirm="Delete"
        onClose=${() => setIsAsking(false)}
        onConfirm=${go}
        text=${`Finished runs keep the hash of ${dataset.name}. To train on it again, upload it again.`}
      />`
    }
  `;
}
