/** Experiments: runs that were launched together, with their progress and results. */
import { html, useEffect, useState } from '../dom.js';
import { get } from '../data/api.js';
import { useQuery } from '../app/router.js';
import { mayChange, sayError } from '../app/state.js';
import { useTitle } from '../app/title.js';
import { useKeys } from '../app/keys.js';
import { useGet } from '../data/resource.js';
import { experimentAddress } from '../lib/runs/addresses.js';
import { viewAddress } from '../lib/runs/views.js';
import { verdictTitle, VERDICT_NAMES, VERDICTS } from '../lib/runs/verdicts.js';
import { formatCount, formatValue, plural, listSome } from '../lib/text/format.js';
import { lookup } from '../lib/lookup.js';
import { text } from '../lib/url.js';
import { DataTable, makeNumberHeads } from '../components/shared/data_table.js';
import { Icon } from '../components/shared/icons.js';
import { Ago, Empty, Loaded, Skeleton } from '../components/shared/states.js';

const SPEC = { q: text() };
const SEARCH_DEBOUNCE_MS = 200;
const MAX_VARIANTS = 3;
const STATUSES = ['running', 'queued', 'paused', 'finished', 'stopped', 'failed'];

/** @typedef {Api.ExperimentItem} Item */

export function View() {
  useTitle('Experiments');
  const [{ q }, change] = useQuery(SPEC);
  const first = useGet('/experiments', { query: q || undefined }, { live: ['run'], every: 5000 });
  return html`<div class="page experiments">
    <header class="page-head">
      <h1>Experiments</h1>
      <${SearchField} value=${q} onChange=${(/** @type {string} */ typedText) => change({ q: typedText })} />
      <span class="quiet" role="status">
        ${first.data && plural(first.data.total ?? 0, 'experiment')}${first.data && q && ` with “${q}”`}
      </span>
    </header>
    <${SavedComparisons} />
    <${Loaded}
      resource=${first}
      skeleton=${html`<${Skeleton} rows=${10} label="Loading experiments" />`}
      isEmpty=${({ items }) => !items.length}
      empty=${html`<${Nothing} query=${q} clear=${() => change({ q: '' })} />`}
    >
      ${(page) => html`<${List} page=${page} query=${q} key=${q} />`}
    <//>
  </div>`;
}

/** @param {{value: string, onChange: (typed: string) => void}} props */
function SearchField({ value, onChange }) {
  const [typedText, setTypedText] = useState(value);
  const [field, setField] = useState(/** @type {HTMLInputElement | null} */ (null));
  useKeys({ '/': { label: 'search experiments', run: () => field?.focus() } });
  useEffect(() => setTypedText(value), [value]);
  useEffect(() => {
    const timer = setTimeout(() => onChange(typedText), SEARCH_DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [typedText]);
  return html`<label class="search">
    <${Icon} name="search" />
    <span class="visually-hidden">Search experiments</span>
    <input
      class="field"
      type="search"
      ref=${setField}
      placeholder="Name or variant"
      maxlength="200"
      value=${typedText}
      onInput=${(/** @type {any} */ event) => setTypedText(event.target.value)}
    />
  </label>`;
}

/** Saved comparisons, or nothing if there are none. */
function SavedComparisons() {
  const views = useGet('/views').data?.items.filter(({ page }) => page === 'compare') ?? [];
  return (
    views.length > 0 &&
    html`<nav class="experiments-saved toolbar" aria-label="Saved comparisons">
      <span class="quiet">Saved comparisons</span>
      ${views.map((view) => html`<a class="chip" key=${view.id} href=${viewAddress(view)} title=${view.query}>${view.name}</a>`)}
    </nav>`
  );
}

/** @param {{query: string, clear: () => void}} props */
function Nothing({ query, clear }) {
  if (query)
    return html`<${Empty}
      title="No matching experiments"
      action=${html`<button class="button" onClick=${clear}>Clear the search</button>`}
    >
      No name of an experiment or of a variant contains “${query}”.
    <//>`;
  return html`<${Empty}
    title="No experiments yet"
    action=${
      mayChange.value &&
      html`
        <a class="button button-primary" href="/launch">Launch an experiment</a>${' '}
        <a class="button" href="/import">Import a log</a>
      `
    }
  >
    An experiment trains a few variants with a few seeds each. Its curves, results and settings are compared here.
  <//>`;
}

/**
 * The list. More pages are loaded on request and are not updated afterwards.
 * @param {{page: Api.ExperimentPage, query: string}} props
 */
function List({ page, query }) {
  const [laterPage, setLaterPage] = useState(/** @type {{items: Item[], next: string | null} | null} */ (null));
  const next = laterPage ? laterPage.next : page.next;
  const loadMore = async () => {
    try {
      const { items, next: cursor } = await get('/experiments', { query: query || undefined, cursor: next ?? '' });
      setLaterPage({ items: [...(laterPage?.items ?? []), ...items], next: cursor });
    } catch (error) {
      sayError(error);
    }
  };
  const items = [...new Map([...page.items, ...(laterPage?.items ?? [])].map((item) => [item.id, item])).values()];
  return html`
    <${DataTable}
      name="Experiments"
      frame="card table-scroll"
      kind="table experiments-table"
      heads=${[
        'experiment',
        'runs',
        'verdicts',
        { title: 'best accuracy', isNumber: true, help: 'Highest held-out accuracy of a run at its last evaluation' },
        'variants',
        ...makeNumberHeads('created', 'last activity'),
      ]}
    >
      <tbody>
        ${items.map((item) => html`<${Row} key=${item.id} item=${item} />`)}
      </tbody>
    <//>
    ${
      next &&
      html`<p class="experiments-more">
        <button class="button" onClick=${loadMore}>Older experiments</button>
        <span class="faint">${formatCount(items.length)} of ${formatCount(page.total ?? items.length)}</span>
      </p>`
    }
  `;
}

/** @type {Record<string, string>} */
const KINDS = { sweep: 'sweep', search: 'search', trial: 'trial' };

/** @param {{item: Item}} props */
function Row({ item }) {
  return html`<tr>
    <th scope="row">
      <a class="experiment-name" href=${experimentAddress(item.id)}>${item.name}</a>
      ${lookup(KINDS, item.kind) && html`<span class="tag">${lookup(KINDS, item.kind)}</span>`}
    </th>
    <td><${Statuses} item=${item} /></td>
    <td><${Verdicts} verdicts=${item.verdicts} /></td>
    <td class="number">${formatValue(item.best_accuracy)}</td>
    <td class="experiment-variants" title=${item.variants.slice(0, 50).join(', ')}>
      ${listSome(item.variants, MAX_VARIANTS)}
    </td>
    <td class="number"><${Ago} time=${item.created_at} /></td>
    <td class="number"><${Ago} time=${item.active_at} /></td>
  </tr>`;
}

/** @param {{item: Item}} props */
function Statuses({ item: { runs, statuses } }) {
  if (!runs) return html`<span class="faint">none left</span>`;
  const counts = STATUSES.filter((status) => lookup(statuses, status));
  const [onlyStatus] = counts;
  if (counts.length === 1) return html`${formatCount(runs)} <span class=${`status-${onlyStatus}`}>${onlyStatus}</span>`;
  return html`${formatCount(runs)}${': '}
    ${counts.map(
      (status, i) => html`<span key=${status} class=${`status-${status}`}>
        ${i > 0 && ', '}${formatCount(lookup(statuses, status))} ${status}
      </span>`,
    )}`;
}

/** @param {{verdicts: Record<string, number>}} props */
function Verdicts({ verdicts }) {
  const countedVerdicts = VERDICT_NAMES.filter((verdict) => lookup(verdicts, verdict));
  if (!countedVerdicts.length) return html`<span class="faint">–</span>`;
  return countedVerdicts.map(
    (verdict, i) => html`<span key=${verdict} class=${`verdict-${VERDICTS[verdict].tone}`}>
      ${i > 0 && ', '}${formatCount(lookup(verdicts, verdict))} ${verdictTitle(verdict)}
    </span>`,
  );
}
