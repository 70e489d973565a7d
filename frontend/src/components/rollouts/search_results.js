/** The completions that a search found, as snippets with marked matches. An opened result shows its whole group. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { useGet } from '../../data/resource.js';
import { sayError } from '../../app/state.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { isTruncated, otherFlags } from '../../lib/rollouts.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { Empty, Loaded, Skeleton } from '../shared/states.js';
import { GroupView } from './group.js';
import { Labels } from './labels.js';
import { Task } from './task.js';
import { Visible } from './text.js';

const PAGE = 20;
const NO_FILTER = { filter: [], least: null };

/** @typedef {Record<string, string | number | null | undefined>} Scope */

/**
 * @param {{scope: Scope, query: string, openId: string, onOpen: (id: string) => void, onLabels: () => void}} props
 */
export function SearchResults({ scope, query, openId, onOpen, onLabels }) {
  const params = { ...scope, q: query, limit: PAGE };
  const page = useGet('/rollouts/search', params);
  const key = JSON.stringify(params);
  const [laterPages, setLaterPages] = useState(
    /** @type {{key: string, items: Api.SearchMatch[], next: string | null, searched_to: number | null}} */
    ({ key: '', items: [], next: null, searched_to: null }),
  );
  const { next: cursor = null, searched_to = null } = page.data ?? {};
  const laterPage = laterPages.key === key ? laterPages : { key, items: [], next: cursor, searched_to };
  const next = async () => {
    try {
      const nextPage = await get('/rollouts/search', { ...params, cursor: laterPage.next ?? '' });
      setLaterPages({ ...nextPage, key, items: [...laterPage.items, ...nextPage.items] });
    } catch (error) {
      sayError(error);
    }
  };
  return html`<${Loaded}
    resource=${page}
    skeleton=${html`<${Skeleton} rows=${8} />`}
    isEmpty=${(/** @type {Api.SearchMatchPage} */ data) => !data.items.length && !data.waiting && !data.next}
    empty=${html`<${Empty} title="No completion matches" />`}
  >
    ${(/** @type {Api.SearchMatchPage} */ data) => html`
      ${
        data.waiting > 0 &&
        html`<p class="quiet" role="status">
          ${plural(data.waiting, 'group')} not indexed yet: completions of them may be missing
        </p>`
      }
      <ul class="search-results">
        ${[...data.items, ...laterPage.items].map(
          (item) => html`<${Result}
            key=${item.id}
            item=${item}
            isOpen=${openId === item.id}
            onOpen=${onOpen}
            onLabels=${onLabels}
          />`,
        )}
      </ul>
      ${laterPage.searched_to !== null && html`<p class="quiet" role="status">Searched up to step ${laterPage.searched_to}</p>`}
      ${
        laterPage.next &&
        html`<button type="button" class="button" onClick=${next}>
          ${laterPage.searched_to === null ? 'Show more' : 'Continue searching'}
        </button>`
      }
    `}
  <//>`;
}

/** @param {{item: Api.SearchMatch, isOpen: boolean, onOpen: (id: string) => void, onLabels: () => void}} props */
function Result({ item, isOpen, onOpen, onLabels }) {
  return html`<li class="card search-result" data-found=${item.id}>
    <header class="rollout-head">
      <button
        type="button"
        class="button-quiet"
        aria-expanded=${isOpen}
        onClick=${() => onOpen(isOpen ? '' : item.id)}
      >
        step ${item.step} · #${item.position}
      </button>
      ${item.kind !== 'train' && html`<span class="faint">${item.kind}</span>`}
      ${
        item.correct !== null &&
        html`<span class=${`mark ${item.correct ? 'mark-good' : 'mark-bad'}`}>
          ${item.correct ? 'right' : 'wrong'}
        </span>`
      }
      <span class="faint">reward</span> <strong>${item.reward === null ? 'n/a' : formatValue(item.reward)}</strong>
      ${isTruncated(item) && html`<span class="tag">truncated</span>`}
      ${otherFlags(item).map((flag) => html`<span class="tag" key=${flag}>${flag.replaceAll('_', ' ')}</span>`)}
      <span class="spacer"></span>
      <a href=${rolloutsAddress(item.run, { step: item.step, kind: item.kind })}>view step</a>
    </header>
    <${Task} prompt=${item.prompt} answer=${item.answer} />
    <p class="model-text search-snippet"><${SnippetText} snippet=${item.snippet} /></p>
    <${Labels} id=${item.id} labels=${item.labels} onChange=${onLabels} />
    ${isOpen && html`<${InGroup} item=${item} />`}
  </li>`;
}

/** A piece of untrusted text with marked matches. @param {{snippet: Api.Snippet}} props */
export function SnippetText({ snippet }) {
  const characters = [...snippet.text];
  const slice = (/** @type {number} */ from, /** @type {number} */ to) => characters.slice(from, to).join('');
  let position = 0;
  const segments = /** @type {[number, number][]} */ (snippet.marks).flatMap(([from, to]) => {
    const nodes = [
      html`<${Visible} text=${slice(position, from)} />`,
      html`<mark><${Visible} text=${slice(from, to)} /></mark>`,
    ];
    position = to;
    return nodes;
  });
  const endText = html`<${Visible} text=${slice(position, characters.length)} />`;
  return html`${!snippet.is_start && '… '}${segments}${endText}${!snippet.is_end && ' …'}`;
}

/** The group of a completion, scrolled to that completion. @param {{item: Api.SearchMatch}} props */
function InGroup({ item }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const groups = useGet('/rollouts', {
    run: item.run,
    step: item.step,
    kind: item.kind,
    prompt: item.prompt_id,
    limit: 200,
  });
  const group = groups.data?.items.find(({ id }) => id === item.group);
  useEffect(() => {
    const card = group && box.current?.querySelector(`[data-completion="${CSS.escape(item.id)}"]`);
    if (!card) return;
    card.classList.add('is-found');
    card.scrollIntoView({ block: 'nearest' });
  }, [group?.id, item.id]);
  return html`<div ref=${box}>
    <${Loaded} resource=${groups} skeleton=${html`<${Skeleton} rows=${6} />`}>
      ${() =>
        group
          ? html`<${GroupView} group=${group} filter=${NO_FILTER} order="index" colourBy="none" />`
          : html`<${Empty} title="This group no longer exists" />`}
    <//>
  </div>`;
}
