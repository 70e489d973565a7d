/** Import: a log of another trainer is previewed, and then becomes a run. */
import { html, useRef, useState } from '../dom.js';
import { navigate } from '../app/router.js';
import { mayChange } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { upload } from '../data/api.js';
import { formatCount, formatPercent, plural } from '../lib/text/format.js';
import { Drop } from '../components/import/drop.js';
import { ColumnTable, Report } from '../components/import/report.js';
import { Empty } from '../components/shared/states.js';
import { comparisonAddress } from '../lib/runs/addresses.js';
import { lookup } from '../lib/lookup.js';

const LONGEST_NAME = 200;
const ROWS = 'rows';
const KINDS = `what a trainer prints, a notebook or a table; CSV, JSONL or Parquet; a trainer_state.json of TRL;
  dumps of completions; a TensorBoard event file, a .wandb or .swanlab file, a database of MLflow or Trackio; a zip or
  tar file of such files; or a run's archive. Several files, or a directory, are imported together`;

/** Returns the parameters of the request: only choices that differ from the service's guess. */
const makeParameters = (file, { names, steps, mapping, runs }) => ({
  file: file.name.slice(-LONGEST_NAME),
  ...names,
  runs: runs.length ? JSON.stringify(runs) : undefined,
  step: steps.startsWith('=') ? steps.slice(1) : undefined,
  row_numbers: steps === ROWS ? 'true' : undefined,
  mapping: Object.keys(mapping).length ? JSON.stringify(mapping) : undefined,
});

/** @type {{names: Record<string, string>, steps: string, mapping: Record<string, string>, runs: string[]}} */
const NOTHING = { names: {}, steps: '', mapping: {}, runs: [] };

export function View() {
  useTitle('Import a log');
  const [file, setFile] = useState(/** @type {import('../lib/tar.js').Log | null} */ (null));
  const [choices, setChoices] = useState(NOTHING);
  const [preview, setPreview] = useState(/** @type {Api.ImportResponse | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [share, setShare] = useState(/** @type {number | null} */ (null));
  const latestRequest = useRef(0);

  /** @param {import('../lib/tar.js').Log} log @param {typeof NOTHING} options @param {boolean} isDry */
  const send = async (log, options, isDry) => {
    latestRequest.current += 1;
    const request = latestRequest.current;
    setError(null);
    setShare(0);
    try {
      const params = { ...makeParameters(log, options), dry_run: isDry ? 'true' : undefined };
      const signal = new AbortController().signal;
      const answer = await upload('/imports', log.content, { params, signal, onProgress: setShare });
      if (request !== latestRequest.current) return;
      const importedRuns = answer.runs.filter(({ run }) => run);
      if (importedRuns.length > 1) navigate(comparisonAddress(importedRuns.map(({ run }) => run)));
      else if (answer.run) navigate(`/run/${answer.run}`);
      else setPreview(answer);
    } catch (failure) {
      if (request === latestRequest.current) setError(failure);
    }
    if (request === latestRequest.current) setShare(null);
  };
  const choose = (/** @type {import('../lib/tar.js').Log} */ log) => {
    setFile(log);
    setChoices(NOTHING);
    setPreview(null);
    send(log, NOTHING, true);
  };
  const change = (changes) => setChoices((old) => ({ ...old, ...changes }));
  const lookAgain = (changes) => {
    if (!file) return;
    const options = { ...choices, ...changes };
    setChoices(options);
    send(file, options, true);
  };
  const defaultRuns = preview ? preview.runs.filter(({ is_chosen: is }) => is).map(({ label }) => label) : [];
  const chosenRuns = choices.runs.length ? choices.runs : defaultRuns;

  if (!mayChange.value) return html`<${Empty} title="Only operators import logs">You are logged in as a viewer.<//>`;
  return html`<div class="page import">
    <div class="page-head">
      <h1>Import a log</h1>
    </div>
    <p class="quiet import-intro">
      A log of another trainer becomes a run that is listed, drawn and compared like any other. It can be
      ${' '}${KINDS}.${' '}
      <a href="/help/importing">How names and steps are read</a>
    </p>
    <${Drop} log=${file} onChoose=${choose} />
    ${!file && html`<${PushHint} />`}
    ${share !== null && html`<${Sending} file=${file} share=${share} />`}
    ${error && html`<${ImportError} error=${error} />`}
    ${
      preview &&
      html`<form
        onSubmit=${(event) => {
          event.preventDefault();
          if (file) send(file, choices, false);
        }}
      >
        ${
          preview.runs.length > 1 &&
          html`<${Runs} runs=${preview.runs} chosenRuns=${chosenRuns} onChange=${(runs) => lookAgain({ runs, mapping: {} })} />`
        }
        <${Report} report=${preview.report} several=${chosenRuns.length > 1} />
        <${Names}
          seen=${preview}
          several=${chosenRuns.length > 1}
          names=${choices.names}
          onChange=${(names) => change({ names })}
        />
        <${Steps}
          report=${preview.report}
          value=${choices.steps}
          onChange=${(steps) => lookAgain({ steps, mapping: {} })}
        />
        <${ColumnTable}
          report=${preview.report}
          mapping=${choices.mapping}
          onChange=${(mapping) => change({ mapping })}
        />
        <footer class="import-actions">
          <button class="button button-primary" disabled=${share !== null}>
            ${chosenRuns.length > 1 ? `Import ${chosenRuns.length} runs` : 'Import as a run'}
          </button>
        </footer>
      </form>`
    }
  </div>`;
}

const LOOPBACK = /^(localhost|127\.[\d.]+|\[::1\])$/;

/** @param {string} origin */
const ON_THE_MACHINE = (origin) => `curl -O ${origin}/grpolab.py
export GRPOLAB_URL=${origin}
export GRPOLAB_TOKEN=...  # printed where this service runs: grpolab token --writer NAME`;
const IN_THE_SCRIPT = `from grpolab import GRPOLabCallback
trainer.add_callback(GRPOLabCallback(trainer=trainer))`;

/** Instructions to push a run of a trainer that is still running. */
const PushHint = () => html`<section class="import-push">
  <h2>Or push a run while it trains</h2>
  <p class="quiet">
    One file without dependencies pushes metrics and completions of TRL, verl or any script to a run of this service.
    It loses nothing while the service cannot be reached. On the training machine:
  </p>
  <pre class="card code" tabindex="0" aria-label="On the training machine">${ON_THE_MACHINE(location.origin)}</pre>
  ${
    LOOPBACK.test(location.hostname) &&
    html`<p class="quiet">
      If the trainer runs on another machine, replace <code>${location.host}</code> with an address at which it
      reaches this service, <a href="/help/push#two-lines">or forward the port</a>.
    </p>`
  }
  <p class="quiet">In a script that trains with TRL, two lines before <code>trainer.train()</code>:</p>
  <pre class="card code" tabindex="0" aria-label="In the training script">${IN_THE_SCRIPT}</pre>
  <p class="quiet"><a href="/help/push">verl, other trainers, and what happens when something fails</a></p>
</section>`;

const Sending = ({ file, share }) => html`<p class="import-sending" role="status">
  <progress value=${share < 1 ? share : undefined} aria-label=${`Upload of ${file.name}`}></progress>
  <span class="quiet">${share < 1 ? `${formatPercent(share)} of ${file.name} sent` : 'Reading the log…'}</span>
</p>`;

/** The reason why the service rejects the file or a choice. */
function ImportError({ error }) {
  const lines = error.errors?.length ? error.errors : [{ path: '', message: error.detail || error.message }];
  return html`<div class="import-refused" role="alert">
    <strong>The log was not imported</strong>
    <ul>
      ${lines.map(
        ({ path, message }) => html`<li>
          ${path === 'file' || !path ? '' : `${path}: `}${message}
        </li>`,
      )}
    </ul>
  </div>`;
}

const FIELDS = [
  ['name', 'Name of the run', ''],
  ['experiment', 'Experiment', 'Imported runs of one experiment are compared on one page'],
  ['variant', 'Variant', 'Runs of one variant count as its seeds'],
  ['seed', 'Seed', ''],
];

/**
 * The choice of the file's runs to import, at least one.
 * @param {{runs: Api.RunItemOfImport[], chosenRuns: string[], onChange: (labels: string[]) => void}} props
 */
function Runs({ runs, chosenRuns, onChange }) {
  const turn = (/** @type {string} */ label) =>
    onChange(
      chosenRuns.includes(label) ? chosenRuns.filter((chosenLabel) => chosenLabel !== label) : [...chosenRuns, label],
    );
  return html`<fieldset class="import-runs">
    <legend>The file holds ${formatCount(runs.length)} runs. The report is about the first that is chosen.</legend>
    ${runs.map(
      ({ label, rows, completions }) => html`<label key=${label}>
        <input
          type="checkbox"
          checked=${chosenRuns.includes(label)}
          disabled=${chosenRuns.length === 1 && chosenRuns[0] === label}
          onChange=${() => turn(label)}
        />
        <span>${label}</span>
        <span class="quiet">
          ${plural(rows, 'row')}${completions > 0 && `, ${plural(completions, 'completion')}`}
        </span>
      </label>`,
    )}
  </fieldset>`;
}

/** The name of the run, with guesses as placeholders. Several runs keep their names in the file. */
function Names({ seen, several, names, onChange }) {
  const fields = FIELDS.filter(([key]) => !several || key === 'experiment');
  return html`<fieldset class="import-names">
    <legend class="visually-hidden">Names</legend>
    ${fields.map(
      ([key, title, hint]) => html`<label key=${key} title=${hint}>
        <span>${title}</span>
        <input
          class="field"
          type=${key === 'seed' ? 'number' : 'text'}
          min="0"
          max="2147483647"
          maxlength=${LONGEST_NAME}
          placeholder=${String(lookup(seen, key))}
          value=${lookup(names, key) ?? ''}
          onInput=${(event) => onChange({ ...names, [key]: event.target.value || undefined })}
        />
      </label>`,
    )}
  </fieldset>`;
}

/** The choice of the column with the step numbers. A change requests a new report. */
function Steps({ report, value, onChange }) {
  const guess = report.step ? `${report.step}` : 'row numbers';
  const columns = [...report.step_candidates, ...report.columns.map(({ column }) => column)];
  const options = [...new Set(columns)].filter((name) => name !== report.step);
  return html`<p class="import-steps">
    <label>
      Steps are counted by${' '}
      <span class="select">
        <select value=${value} onChange=${(event) => onChange(event.target.value)}>
          <option value=${value} selected>
            ${guess}
          </option>
          ${
            report.step &&
            html`<option value=${ROWS}>
              row numbers
            </option>`
          }
          ${options.map((name) => html`<option key=${name} value=${`=${name}`}>${name}</option>`)}
        </select>
      </span>
    </label>
  </p>`;
}
