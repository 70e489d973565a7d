/** The header of an experiment or a comparison, with a summary and exports. */
import { html, useMemo } from '../../dom.js';
import { makeConfigColumns, makeFieldRows } from '../../lib/runs/differences.js';
import { address } from '../../lib/url.js';
import { plural, listSome } from '../../lib/text/format.js';
import { copyText } from '../../app/actions.js';
import { Icon } from '../shared/icons.js';
import { Ago } from '../shared/states.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */

/** Returns the name of the runs' experiment, or a general title if there are several. @param {Api.RunItem[]} runs */
export function makeTitle(runs) {
  const names = new Map(runs.map((run) => [run.experiment, run.experiment_name]));
  const [[id, name]] = names;
  return names.size === 1 && id ? (name ?? 'Experiment') : 'Comparison';
}

const MAX_VALUES = 2;
const MAX_FIELDS = 3;

/**
 * A line about the differences between configs, with a link to all of them. For two configs it shows the values.
 * @param {{groups: Group[], onSettings: () => void}} props
 */
function Differences({ groups, onSettings }) {
  const { paths, columns } = useMemo(() => makeConfigColumns(groups), [groups]);
  if (!paths.length) return null;
  const isPair = columns.length === 2 && paths.length <= MAX_VALUES;
  const words = isPair
    ? makeFieldRows(paths, columns).map(({ label, texts }) => `${label} ${texts.join(' / ')}`)
    : paths;
  return html`<button class="button-quiet compare-differs" title="All config differences" onClick=${onSettings}>
    <span>differs in ${listSome(words, MAX_FIELDS)}</span>
  </button>`;
}

/**
 * @param {{runs: Api.RunItem[], groups: Group[], grouping: string, query: string, createdAt?: string, views: any,
 *   onReport?: () => void, onSettings: () => void}} props `query`: which chose the runs, if one did; `createdAt`: of the experiment;
 *   `views`: the menu of saved views
 */
export function Head({ runs, groups, grouping, query, createdAt, views, onReport, onSettings }) {
  const experiments = [...new Map(runs.map((run) => [run.experiment, run.experiment_name])).entries()];
  const seeds = new Set(runs.map(({ seed }) => seed)).size;
  const live = runs.filter(({ status }) => status === 'running').length;
  const single = experiments.length === 1 && experiments[0][0];
  const kind = grouping === 'variant' ? 'variant' : 'group';
  const size =
    kind === 'variant' && groups.length * seeds === runs.length
      ? `${plural(groups.length, kind)} × ${plural(seeds, 'seed')}`
      : plural(groups.length, kind);
  return html`<header class="page-head">
    <h1>${makeTitle(runs)}</h1>
    <span class="quiet">
      ${plural(runs.length, 'run')} · ${size}
      ${
        live
          ? html`
            ${' '}
            · <span class="status-running">${live} training</span>
          `
          : ''
      }
      ${createdAt && html`${' '}· <${Ago} time=${createdAt} />`}
    </span>
    <${Differences} groups=${groups} onSettings=${onSettings} />
    ${
      query &&
      html`<span class="quiet">
        that match <code>${query}</code>
      </span>`
    }
    <span class="spacer"></span>
    ${views}
    ${
      onReport &&
      html`<button class="button" title="This comparison as one file that opens offline" onClick=${onReport}>
        <${Icon} name="download" /> Report
      </button>`
    }
    <button class="button" onClick=${() => copyText(location.href, 'Link')}>
      <${Icon} name="link" /> Copy link
    </button>
    ${
      (query || single) &&
      html`<a class="button" href=${address('/runs', query ? { q: query } : { experiment: single })}>
        Open in Runs
      </a>`
    }
  </header>`;
}
