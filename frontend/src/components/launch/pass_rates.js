/** The pass rates of an earlier run, which are stored when its id is entered and shown with the run's name. */
import { html, useId, useState } from '../../dom.js';
import { get, post } from '../../data/api.js';
import { useLoad } from '../../data/resource.js';
import { plural } from '../../lib/text/format.js';
import { Row } from './row.js';
import { ForOperator } from '../shared/role.js';

/**
 * @param {{field: import('../../lib/launch/schema.js').Field, value: string, layer: import('./row.js').Layer,
 *   label: string}} props
 */
export function PassRatesField({ field, value, layer, label }) {
  const id = useId();
  const [run, setRun] = useState('');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const read = async () => {
    setBusy(true);
    setProblem('');
    try {
      // The address of the run's page is accepted too.
      const id = run.trim().replace(/^.*\/run\/([^/?#]+).*$/, '$1');
      const { sha256 } = await post('/rollouts/pass-rates', { run: id });
      setRun('');
      layer.onChange(field.path, sha256);
    } catch (error) {
      const { detail, message } = /** @type {import('../../data/api.js').ApiError} */ (error);
      setProblem(detail || message);
    }
    setBusy(false);
  };
  return html`<${Row} field=${field} layer=${layer} label=${label} id=${id} wide>
    ${value && html`<${StoredPassRates} sha256=${value} onRemove=${() => layer.onChange(field.path, '')} />`}
    <${ForOperator}>
      <div class="dataset">
        <input
          id=${id}
          class="field"
          placeholder="Id or address of a run"
          value=${run}
          onInput=${(event) => setRun(event.target.value)}
          onKeyDown=${(event) => event.key === 'Enter' && run.trim() && !busy && read()}
          spellcheck=${false}
          autocomplete="off"
          aria-describedby=${`${id}-help`}
        />
        <button type="button" class="button" disabled=${busy || !run.trim()} onClick=${read}>
          Use its pass rates
        </button>
      </div>
    <//>
    ${
      problem &&
      html`<p class="form-errors" role="alert">
        ${problem}
      </p>`
    }
  <//>`;
}

/** The origin of stored pass rates. @param {{sha256: string, onRemove: () => void}} props */
function StoredPassRates({ sha256, onRemove }) {
  const storedRates = useLoad(`pass rates ${sha256}`, (signal) =>
    get(/** @type {'/rollouts/pass-rates/{sha256}'} */ (`/rollouts/pass-rates/${sha256}`), undefined, signal),
  );
  return html`<p class="pass-rates" role="status">
    ${
      storedRates.data
        ? html`
          <a href=${`/run/${storedRates.data.run}`}>${storedRates.data.run_name}</a>, ${plural(storedRates.data.prompts, 'prompt')} up
          to step ${storedRates.data.last_step}
        `
        : storedRates.error
          ? 'Not stored here'
          : 'Loading…'
    }
    ${' '}<button type="button" class="button-quiet" onClick=${onRemove}>
      Remove
    </button>
  </p>`;
}
