/** The dialog that tags one or many runs. */
import { html, useState } from '../../dom.js';
import { actOnRuns } from '../../app/actions.js';
import { plural } from '../../lib/text/format.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';

/**
 * @param {{ids: string[], loadedRuns: Api.RunItem[], offeredTags: string[], reload: () => void, onClose: () => void}}
 *   props `loadedRuns`: those of the runs whose tags are known; `offeredTags`: the tags with buttons
 */
export function TagDialog({ ids, loadedRuns, offeredTags, reload, onClose }) {
  const [tag, setTag] = useState('');
  const addTag = (/** @type {string} */ name) => {
    onClose();
    actOnRuns(hasAll(name) ? 'untag' : 'tag', ids, reload, name);
  };
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (tag.trim()) addTag(tag.trim());
  };
  const hasAll = (/** @type {string} */ name) =>
    loadedRuns.length > 0 && loadedRuns.every(({ tags }) => tags.includes(name));
  return html`<${Dialog} title=${ids.length === 1 ? 'Tags' : `Tag ${plural(ids.length, 'run')}`} onClose=${onClose}>
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
        offeredTags.length > 0 &&
        html`<p class="tag-choice">
          ${offeredTags.map(
            (name) => html`<button type="button" class="button button-small" key=${name} onClick=${() => addTag(name)}>
              ${hasAll(name) ? 'remove ' : ''}
              ${name}
            </button>`,
          )}
        </p>`
      }
      <${DialogButtons} onClose=${onClose} disabled=${!tag.trim()}>
        ${hasAll(tag.trim()) && tag.trim() ? 'Remove tag' : 'Tag'}
      <//>
    </form>
  <//>`;
}
