/** The controls around the table of runs: filters above it, columns and file below. */
import { html, useState } from '../../dom.js';
import { writeCsv } from '../../lib/text/csv.js';
import { makeRunField, listPossibleFields } from '../../lib/runs/fields.js';
import { filterMetrics } from '../../lib/metrics.js';
import { formatCount, formatValue, plural } from '../../lib/text/format.js';
import { VERDICT_NAMES, verdictTitle } from '../../lib/runs/verdicts.js';
import { computeSpread } from '../../lib/runs/stats.js';
import { download } from '../../app/actions.js';
import { Menu } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';
import { ViewsMenu } from '../shared/views.js';
import { Filter, ValueFilter } from './filter.js';
import { QueryField } from './query_field.js';
import { EmptyTrash } from './selection.js';

/** Returns the saved part of the page's view. @param {RunsView} view @param {string[]} `usual`: default columns */
const makeSavedView = ({ q, status, verdict, tag, variant, experiment, archived, sort, group, columns }, usual) => ({
  page: /** @type {const} */ ('runs'),
  query: q,
  status,
  verdict,
  tag,
  variant,
  experiment,
  archived,
  sort,
  group,
  columns: columns.join() === usual.join() ? null : columns,
});

/** Returns the changes that show a saved view. @param {Api.ViewItem} view */
const makeRunsView = ({ query, status, verdict, tag, variant, experiment, archived, sort, group, columns }) => ({
  q: query,
  status,
  verdict,
  tag,
  variant,
  experiment,
  archived,
  trash: false,
  sort,
  group,
  columns: columns ?? undefined,
});

const makePlainOptions = (/** @type {string[]} */ values) => values.map((value) => ({ value, label: value }));
const VERDICTS = VERDICT_NAMES.map((value) => ({ value, label: verdictTitle(value) }));
/** @type {import('./filter.js').Option[]} */
const SHELVES = [
  { value: 'archived', label: 'archived runs' },
  { value: 'trash', label: 'trash' },
];

/**
 * @typedef {import('../../views/runs.js').RunsView} RunsView
 * @param {{view: RunsView, change: Function, runs: Api.RunItem[], filter: Record<string, string | undefined>,
 *   search: {current: HTMLInputElement | null}, statuses: string[], usual: string[],
 *   error: import('../../data/api.js').ApiError | null}} props `filter`: parameters of the list; `usual`: default
 *   columns; `error`: that of the list
 */
export function RunFilters({ view, change, runs, filter, search, statuses, usual, error }) {
  const experiment = runs.find((run) => run.experiment === view.experiment)?.experiment_name;
  const valueFilter = (/** @type {'experiment' | 'variant' | 'tag'} */ field, /** @type {string} */ label) =>
    html`<${ValueFilter}
      field=${field}
      value=${view[field]}
      label=${label}
      filter=${filter}
      onChange=${(/** @type {string} */ value) => change({ [field]: value })}
    />`;
  return html`<div class="runs-filters toolbar">
    <${QueryField} value=${view.q} onChange=${(q) => change({ q })} input=${search} error=${error} />
    <span class="toolbar toolbar-tight">
      ${valueFilter('experiment', experiment ?? view.experiment)}
      ${valueFilter('variant', view.variant)}
      <${Filter}
        name="status"
        value=${view.status}
        options=${makePlainOptions(statuses.filter(Boolean))}
        onChange=${(status) => change({ status })}
      />
      <${Filter}
        name="verdict"
        value=${view.verdict}
        options=${VERDICTS}
        onChange=${(verdict) => change({ verdict })}
      />
      ${valueFilter('tag', view.tag)}
      <${Filter}
        name="archive"
        value=${view.trash ? 'trash' : view.archived ? 'archived' : ''}
        options=${SHELVES}
        anyLabel="runs in use"
        onChange=${(shelf) => change({ archived: shelf === 'archived', trash: shelf === 'trash' })}
      />
      <${ViewsMenu} view=${makeSavedView(view, usual)} onOpen=${(item) => change(makeRunsView(item))} />
    </span>
  </div>`;
}

/**
 * @param {{view: RunsView, change: Function, runs: import('../../data/run_list.js').RunList, defaults: string[]}} props
 */
export function TableTools({ view, change, runs, defaults }) {
  const groups = ['', 'variant', 'experiment', 'status', ...listPossibleFields(runs.items).config];
  const groupTitle = (/** @type {string} */ key) =>
    key === '' ? 'none' : ['variant', 'status'].includes(key) ? key : makeRunField(key).title;
  const save = () => download(tableAsCsv(runs.items, view.columns), 'runs.csv');
  return html`<div class="runs-tools toolbar toolbar-tight">
    <span class="faint">
      ${runs.loaded && totalText(runs)}
    </span>
    ${
      view.trash &&
      html`<${ForOperator}>
        <${EmptyTrash} runs=${runs} />
      <//>`
    }
    <span class="spacer"></span>
    <${ForOperator}>
      <a class="button-quiet" href="/import" title="Import a log of TRL, verl, TensorBoard, W&B, CSV or JSONL as a run">
        Import a log
      </a>
    <//>
    <${Filter}
      name="group by"
      value=${view.group}
      options=${groups.filter(Boolean).map((value) => ({ value, label: groupTitle(value) }))}
      onChange=${(group) => change({ group })}
    />
    <${Menu} quiet align="right" label="columns">
      <${ColumnChooser} view=${view} change=${change} runs=${runs.items} defaults=${defaults} />
    <//>
    <button
      class="button-quiet"
      aria-pressed=${!view.table}
      onClick=${() => change({ table: !view.table })}
      title="Show the curves next to the table"
    >
      curves
    </button>
    <button
      class="button-quiet"
      onClick=${save}
      disabled=${!runs.items.length}
      title="Download the listed runs as CSV"
    >
      <${Icon} name="download" /> CSV
    </button>
  </div>`;
}

/** Returns a text such as `100 of 5,213 runs`. @param {import('../../data/run_list.js').RunList} runs */
const totalText = ({ items, total }) =>
  items.length < total ? `${formatCount(items.length)} of ${plural(total, 'run')}` : plural(items.length, 'run');

/** @param {Api.RunItem[]} runs @param {string[]} fields */
function tableAsCsv(runs, fields) {
  /** @type {(keyof Api.RunItem)[]} */
  const runFields = ['id', 'name', 'experiment_name', 'variant', 'seed', 'status', 'last_step', 'steps', 'created_at'];
  return writeCsv(
    [...runFields, ...fields],
    runs.map((run) => [...runFields.map((name) => run[name]), ...fields.map((key) => makeRunField(key).read(run))]),
  );
}

/** @typedef {ReturnType<typeof listPossibleFields>} Possible */

/** @type {Record<keyof Possible, string>} */
const FIELD_TITLES = { plain: 'about the run', last: 'last value', best: 'best value', config: 'config' };

/**
 * @param {{view: {columns: string[]}, change: Function, runs: Api.RunItem[], defaults: string[]}} props
 */
function ColumnChooser({ view, change, runs, defaults }) {
  const [search, setSearch] = useState('');
  const possible = listPossibleFields(runs);
  const toggle = (/** @type {string} */ key) =>
    change({
      columns: view.columns.includes(key)
        ? view.columns.filter((columnKey) => columnKey !== key)
        : [...view.columns, key],
    });
  const kinds = /** @type {(keyof Possible)[]} */ (Object.keys(possible));
  const sections = kinds
    .map((kind) => ({ kind, keys: filterMetrics(possible[kind], search) }))
    .filter(({ keys }) => keys.length);
  const addConfig =
    !possible.config.length &&
    html`<button class="menu-item" onClick=${() => toggle('config:preset')}>
      config fields …
    </button>`;
  return html`<div class="column-chooser">
    <input
      class="field"
      type="search"
      placeholder="Find a metric or field"
      value=${search}
      onInput=${(event) => setSearch(event.target.value)}
      aria-label="Find a column"
    />
    <div class="column-list">
      ${sections.map(
        ({ kind, keys }) => html`<div key=${kind}>
          <div class="menu-title">${FIELD_TITLES[kind]}</div>
          ${keys.map(
            (key) => html`<label class="menu-item" key=${key}>
              <input type="checkbox" checked=${view.columns.includes(key)} onChange=${() => toggle(key)} />
              ${key.replace(/^(best|config):/, '')}
            </label>`,
          )}
        </div>`,
      )}
      ${addConfig}
    </div>
    <button class="button-quiet" onClick=${() => change({ columns: defaults })}>
      Reset columns
    </button>
  </div>`;
}

/**
 * The head of a group, with the number of runs, and mean and standard deviation (sd) of numeric columns.
 * @param {{group: {name: string, rows: Api.RunItem[]}, fields: string[]}} props
 */
export function GroupRow({ group: { name, rows }, fields }) {
  const numbers = fields
    .map(makeRunField)
    .filter(({ number }) => number)
    .map(({ title, read }) => {
      const { n, mean, std } = computeSpread(rows.map(read).filter((value) => typeof value === 'number'));
      return n ? `${title} ${formatValue(mean)}${std === null ? '' : ` (sd ${formatValue(std)})`}` : null;
    })
    .filter(Boolean);
  return html`
    <b>${name}</b>
    <span class="faint">${[plural(rows.length, 'run'), ...numbers].join(' · ')}</span>
  `;
}
