/** States of a page or a part of it: empty, loading, failed and old. */
import { html, useEffect, useState } from '../../dom.js';
import { connection } from '../../data/live.js';
import { status } from '../../app/state.js';
import { listTroubles } from '../../lib/service/status.js';
import { formatAgo } from '../../lib/text/format.js';
import { Icon } from './icons.js';

/**
 * A placeholder for missing content that can suggest an action.
 * @param {{title: string, children?: any, action?: any}} props
 */
export function Empty({ title, children, action }) {
  return html`<div class="state state-empty">
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`}
    ${action && html`<div class="state-action">${action}</div>`}
  </div>`;
}

/**
 * An error message with an action, which is a retry by default. The rest of the page stays.
 * @param {{error: import('../../data/api.js').ApiError, retry?: () => void, action?: {label: string, run:
 *   () => void}}} props
 */
export function Failure({ error, retry, action = retry && { label: 'Try again', run: retry } }) {
  return html`<div class="state state-failure" role="alert">
    <h2>
      <${Icon} name="warn" /> ${error.title ?? error.message}
    </h2>
    ${error.detail && html`<p>${error.detail}</p>`}
    ${
      error.errors?.length > 0 &&
      html`<ul>
        ${error.errors.map(
          ({ path, message }) => html`<li>
            <code>${path}</code> ${message}
          </li>`,
        )}
      </ul>`
    }
    ${
      action &&
      html`<div class="state-action">
        <button class="button" onClick=${action.run}>
          <${Icon} name="refresh" /> ${action.label}
        </button>
      </div>`
    }
  </div>`;
}

/**
 * Grey lines of the size of the expected content, so that the layout does not shift.
 * @param {{rows?: number, height?: number, label?: string}} props
 */
export function Skeleton({ rows = 6, height = 32, label = 'Loading' }) {
  return html`<div class="skeleton" role="status" aria-label=${label}>
    ${Array.from(
      { length: rows },
      (_, i) => html`<div class="skeleton-row" style=${{ height: `${height}px` }} key=${i}>
        <span style=${{ width: `${40 + ((i * 37) % 45)}%` }}></span>
      </div>`,
    )}
  </div>`;
}

/**
 * A loaded resource in all its states. Existing data stays visible below an error.
 * @param {{resource: import('../../data/resource.js').Resource<any>, skeleton?: any, isEmpty?: (data: any) => boolean,
 *   empty?: any, children: (data: any) => any}} props
 */
export function Loaded({ resource, skeleton, isEmpty = () => false, empty, children }) {
  const { data, error, reload } = resource;
  if (data === undefined)
    return error ? html`<${Failure} error=${error} retry=${reload} />` : (skeleton ?? html`<${Skeleton} />`);
  return html`
    ${error && html`<${Stale} error=${error} since=${resource.loadedAt} retry=${reload} />`}
    ${isEmpty(data) ? empty : children(data)}
  `;
}

/**
 * A line above old data.
 * @param {{error: import('../../data/api.js').ApiError, since: number, retry: () => void}} props
 */
export function Stale({ error, since, retry }) {
  return html`<div class="stale" role="alert">
    <${Icon} name="warn" /> ${error.title}. Showing data loaded <${Ago} time=${since} />.
    <button class="button-quiet" onClick=${retry}>
      Try again
    </button>
  </div>`;
}

/** A time that is updated, such as `12 s ago`. @param {{time: string | number}} props */
export function Ago({ time }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 5000);
    return () => clearInterval(timer);
  }, []);
  return html`<time title=${new Date(time).toLocaleString()}>${formatAgo(time)}</time>`;
}

/** A line below the header while the live stream is disconnected, hidden for the first seconds. */
export function ConnectionNotice() {
  const { state, since, reason } = connection.value;
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (state !== 'lost') return undefined;
    const timer = setTimeout(() => setLate(true), 2500);
    return () => clearTimeout(timer);
  }, [state, since]);
  if (!isLate) return null;
  return html`<div class="stale" role="status">
    <${Icon} name="warn" />${' '}
    <span>
      ${
        reason
          ? `Live updates are off: ${reason}.`
          : html`
            Live updates are disconnected <${Ago} time=${since} />.
          `
      }${' '}
      This page may be out of date. Reconnecting… Training continues.
    </span>
  </div>`;
}

/** Lines below the header while the database, broker or disk has problems. */
export function ServiceNotice() {
  return listTroubles(status.value).map(
    ({ part, text }) => html`<div class="stale" role="status" key=${part}>
      <${Icon} name="warn" /> <span>${text}</span>
    </div>`,
  );
}
