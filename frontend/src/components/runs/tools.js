/** Around the table of runs: filters above, columns and file below, what to do with the selection. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { csv } from '../../lib/text/csv.js';
import { fieldOf, possibleFields } from '../../lib/runs/fields.js';
import { matching } from '../../lib/metrics.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { spread } from '../../lib/runs/stats.js';
import {
  archiveRuns,
  deleteForEver,
  deleteRuns,
  download,
  emptyTrash,
  restoreRuns,
  stopRuns,
  tagRuns,
} from '../../data/actions.js';
import { Confirm, Dialog, Menu } from '../shared/overlay.js';
import { Icon } from '../shared/icons.js';
import { Segments } from '../shared/marks.js';
import { ForOperator } from '../shared/role.js';

const LABELS = { '': 'all' };
const IN_FRONT = ['', 'running', 'finished', 'failed'];

const known = (runs, of) => [...new Set(runs.flatMap(of).filter(Boolean))].sort();

/** A menu that narrows the list to one value. */
function Filter({ name, value, options, onChange }) {
  const label = value
    ? html`
    ${name}: <b>${options.find((option) => option.value === value)?.label ?? value}</b>
  `
    : name;
  return html`<${Menu} quiet label=${label}>
    ${(close) => html`
      ${
        value &&
        html`<button
        class="menu-item faint"
        onClick=${() => {
          close();
          onChange('');
        }}
      >
        any ${name}
      </button>`
      }
      ${options.map(
        (option) => html`<button
        class="menu-item"
        key=${option.value}
        onClick=${() => {
          close();
          onChange(option.value);
        }}
      >
        <span class="menu-check">${option.value === value && html`<${Icon} name="check" size=${12} />`}</span>
        ${option.label}
      </button>`,
      )}
      ${!options.length && html`<p class="menu-title">No run in the list has one.</p>`}
    `}
  <//>`;
}

const plainOptions = (values) => values.map((value) => ({ value, label: value }));

/** @param {{view: any, change: Function, runs: any[], search: {current: any}, statuses: string[]}} props */
export function RunFilters({ view, change, runs, search, statuses }) {
  const rest = statuses.filter((status) => !IN_FRONT.includes(status));
  const experiments = [
    ...new Map(
      runs
        .filter((run) => run.experiment)
        .map((run) => [run.experiment, { value: run.experiment, label: run.experiment_name ?? run.experiment }]),
    ).values(),
  ];
  return html`<div class="runs-filters toolbar">
    <label class="search">
      <${Icon} name="search" />
      <span class="visually-hidden">Search runs</span>
      <${TypedSearch}
        value=${view.q}
        onChange=${(q) => change({ q })}
        input=${search}
        placeholder="Search names (/)"
      />
    </label>
    <${Segments}
      label="Status"
      value=${view.status}
      options=${IN_FRONT.map((status) => ({ value: status, label: LABELS[status] ?? status }))}
      onChange=${(status) => change({ status })}
    />
    <span class="toolbar toolbar-tight">
      <${Filter}
        name="status"
        value=${rest.includes(view.status) ? view.status : ''}
        options=${plainOptions(rest)}
        onChange=${(status) => change({ status })}
      />
      <${Filter}
        name="experiment"
        value=${view.experiment}
        options=${experiments}
        onChange=${(experiment) => change({ experiment })}
      />
      <${Filter}
        name="variant"
        value=${view.variant}
        options=${plainOptions(known(runs, (run) => run.variant))}
        onChange=${(variant) => change({ variant })}
      />
      <${Filter}
        name="tag"
        value=${view.tag}
        options=${plainOptions(known(runs, (run) => run.tags ?? []))}
        onChange=${(tag) => change({ tag })}
      />
      <button
        class="button-quiet"
        aria-pressed=${view.archived}
        onClick=${() => change({ archived: !view.archived, trash: false })}
      >
        archived
      </button>
      <button
        class="button-quiet"
        aria-pressed=${view.trash}
        onClick=${() => change({ trash: !view.trash, archived: false })}
      >
        trash
      </button>
    </span>
  </div>`;
}

/** A search field that tells its text a moment after the last key. */
export function TypedSearch({ value, onChange, input, placeholder }) {
  const [typed, setTyped] = useState(value);
  const told = useRef(value);
  useEffect(() => {
    if (value !== told.current) {
      told.current = value;
      setTyped(value);
    }
  }, [value]);
  useEffect(() => {
    if (typed === told.current) return undefined;
    const timer = setTimeout(() => {
      told.current = typed;
      onChange(typed);
    }, 200);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<input
    class="field"
    type="search"
    ref=${input}
    value=${typed}
    placeholder=${placeholder}
    onInput=${(event) => setTyped(event.target.value)}
  />`;
}

/** @param {{view: any, change: Function, runs: any, defaults: string[]}} props */
export function TableTools({ view, change, runs, defaults }) {
  const groups = ['', 'variant', 'experiment', 'status', ...possibleFields(runs.items).config];
  const groupTitle = (key) => (key === '' ? 'none' : ['variant', 'status'].includes(key) ? key : fieldOf(key).title);
  const save = () => download(tableAsCsv(runs.items, view.columns), 'runs.csv');
  return html`<div class="runs-tools toolbar toolbar-tight">
    <span class="faint">
      ${runs.loaded ? `${plural(runs.items.length, 'run')}${runs.next ? ' loaded, more below' : ''}` : ''}
    </span>
    ${
      view.trash &&
      html`<${ForOperator}>
      <${EmptyTrash} runs=${runs} />
    <//>`
    }
    <span class="spacer"></span>
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
      onClick=${save}
      disabled=${!runs.items.length}
      title="The listed runs as a CSV file"
    >
      <${Icon} name="download" /> CSV
    </button>
  </div>`;
}

function tableAsCsv(runs, fields) {
  const own = ['id', 'name', 'experiment_name', 'variant', 'seed', 'status', 'last_step', 'steps', 'created_at'];
  return csv(
    [...own, ...fields],
    runs.map((run) => [...own.map((name) => run[name]), ...fields.map((key) => fieldOf(key).of(run))]),
  );
}

const FIELD_TITLES = { plain: 'about the run', last: 'last value', best: 'best value', config: 'config' };

function ColumnChooser({ view, change, runs, defaults }) {
  const [search, setSearch] = useState('');
  const possible = possibleFields(runs);
  const toggle = (key) =>
    change({
      columns: view.columns.includes(key) ? view.columns.filter((old) => old !== key) : [...view.columns, key],
    });
  const parts = Object.entries(possible)
    .map(([kind, keys]) => [kind, matching(keys, search)])
    .filter(([, keys]) => keys.length);
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
      ${parts.map(
        ([kind, keys]) => html`<div key=${kind}>
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
      Back to the usual columns
    </button>
  </div>`;
}

/**
 * Head of a group: how many, and mean ± standard deviation of the number columns.
 * @param {{group: {name: string, rows: any[]}, fields: string[]}} props
 */
export function GroupRow({ group: { name, rows }, fields }) {
  const numbers = fields
    .map(fieldOf)
    .filter(({ number }) => number)
    .map(({ title, of }) => {
      const { n, mean, std } = spread(rows.map(of).filter((value) => typeof value === 'number'));
      return n ? `${title} ${formatValue(mean)}${std === null ? '' : ` ± ${formatValue(std)}`}` : null;
    })
    .filter(Boolean);
  return html`
    <b>${name}</b>
    <span class="faint">${[plural(rows.length, 'run'), ...numbers].join(' · ')}</span>
  `;
}

const STOPPABLE = ['queued', 'running', 'paused'];

/**
 * @param {{chosen: any[], runs: any, trash: boolean, compare: (ids: string[]) => void, clear: () => void}}
 *   props `trash`: the list is that of the trash
 */
export function SelectionBar({ chosen, runs, trash, compare, clear }) {
  const [asking, ask] = useState('');
  const stoppable = chosen.filter(({ status }) => STOPPABLE.includes(status));
  const isArchived = chosen.every(({ archived }) => archived);
  const done = (action) => {
    action();
    clear();
  };
  if (trash) return html`<${TrashBar} chosen=${chosen} runs=${runs} clear=${clear} />`;
  return html`<div class="runs-tools selection-bar toolbar toolbar-tight" role="toolbar" aria-label="Selected runs">
    <b>${chosen.length} selected</b>
    <button class="button button-small button-primary" onClick=${() => compare(chosen.map(({ id }) => id))}>
      Compare
    </button>
    <${ForOperator}>
      <button class="button button-small" disabled=${!stoppable.length} onClick=${() => ask('stop')}>
        Stop${stoppable.length && stoppable.length < chosen.length ? ` ${stoppable.length}` : ''}
      </button>
      <button class="button button-small" onClick=${() => ask('tag')}>
        Tag
      </button>
      <button
        class="button button-small"
        onClick=${() => done(() => archiveRuns(chosen, !isArchived, runs.reload))}
      >
        ${isArchived ? 'Unarchive' : 'Archive'}
      </button>
      <button class="button button-small" onClick=${() => done(() => deleteRuns(chosen, runs.reload))}>
        Delete
      </button>
    <//>
    <span class="spacer"></span>
    <button class="button-quiet" onClick=${clear}>
      Clear
    </button>
    ${
      asking === 'stop' &&
      html`<${Confirm}
      title=${`Stop ${plural(stoppable.length, 'run')}?`}
      confirm="Stop"
      onClose=${() => ask('')}
      onConfirm=${() => stopRuns(stoppable, runs.put)}
      text="A running one ends after its present step; a queued one is taken from the queue. What was recorded stays."
    />`
    }
    ${asking === 'tag' && html`<${TagDialog} chosen=${chosen} runs=${runs} onClose=${() => ask('')} />`}
  </div>`;
}

/** What can be done in the trash. */
function TrashBar({ chosen, runs, clear }) {
  const [asking, ask] = useState(false);
  const restore = () => {
    restoreRuns(chosen, runs.reload);
    clear();
  };
  return html`<div class="runs-tools selection-bar toolbar toolbar-tight" role="toolbar" aria-label="Selected runs">
    <b>${chosen.length} selected</b>
    <${ForOperator}>
      <button class="button button-small button-primary" onClick=${restore}>
        Restore
      </button>
      <button class="button button-small button-danger" onClick=${() => ask(true)}>
        Delete for ever
      </button>
    <//>
    <span class="spacer"></span>
    <button class="button-quiet" onClick=${clear}>
      Clear
    </button>
    ${
      asking &&
      html`<${Confirm}
      title=${`Delete ${plural(chosen.length, 'run')} for ever?`}
      confirm="Delete for ever"
      text=${GONE}
      onClose=${() => ask(false)}
      onConfirm=${() => {
        deleteForEver(chosen, runs.reload);
        clear();
      }}
    />`
    }
  </div>`;
}

const GONE = 'Curves, rollouts, events, output and checkpoints are removed. Nothing brings them back.';

/** All of the trash at once. @param {{runs: any}} props */
function EmptyTrash({ runs }) {
  const [asking, ask] = useState(false);
  return html`
    <button class="button button-small button-danger" disabled=${!runs.items.length} onClick=${() => ask(true)}>
      Empty the trash
    </button>
    ${
      asking &&
      html`<${Confirm}
      title="Empty the trash?"
      confirm="Delete all for ever"
      text=${`${GONE} A run that other runs begin with stays until they are deleted.`}
      onClose=${() => ask(false)}
      onConfirm=${() => emptyTrash(runs.reload)}
    />`
    }
  `;
}

function TagDialog({ chosen, runs, onClose }) {
  const [tag, setTag] = useState('');
  const others = known(runs.items, (run) => run.tags ?? []);
  const put = (name) => {
    onClose();
    tagRuns(chosen, name, runs.put);
  };
  const submit = (event) => {
    event.preventDefault();
    if (tag.trim()) put(tag.trim());
  };
  const hasAll = (name) => chosen.every(({ tags }) => tags.includes(name));
  return html`<${Dialog} title=${`Tag ${plural(chosen.length, 'run')}`} onClose=${onClose}>
    <form onSubmit=${submit}>
      <input
        class="field wide"
        aria-label="Tag"
        placeholder="a short word, e.g. baseline"
        pattern="[\\s\\S]{0,64}"
        title="At most 64 characters"
        value=${tag}
        autofocus
        onInput=${(event) => setTag(event.target.value)}
      />
      ${
        others.length > 0 &&
        html`<p class="tag-choice">
        ${others.map(
          (name) => html`<button type="button" class="button button-small" key=${name} onClick=${() => put(name)}>
          ${hasAll(name) ? 'remove ' : ''}
          ${name}
        </button>`,
        )}
      </p>`
      }
      <footer>
        <button type="button" class="button" onClick=${onClose}>
          Cancel
        </button>
        <button class="button button-primary" disabled=${!tag.trim()}>
          ${hasAll(tag.trim()) && tag.trim() ? 'Remove tag' : 'Tag'}
        </button>
      </footer>
    </form>
  <//>`;
}
