/**
 * The frame, which shows a page and everything around it.
 *
 * How to write a view on this frame
 * ---------------------------------
 * - A page is an entry in the list of backend/http/pages.py, a view `src/views/<name>.js` that exports `View(props)`, and a
 *   style `styles/<name>.css`. Parameters of its path are the view's props. Views are loaded when first visited.
 * - Elements: `import { html, useState } from '../dom.js'`. Strings in templates become text nodes; there is no
 *   `innerHTML` anywhere, because a policy's text is untrusted. Handlers are functions (`onClick=${go}`).
 * - State of the view lives in the query string: `const SPEC = { step: number(1), q: text() }` (codecs in
 *   lib/url.js), then `const [view, change] = useQuery(SPEC)`; `change({ step: 12 })` replaces the address,
 *   `change({...}, { push: true })` adds a step to the history. Ordinary `<a href>` links move without reloading.
 * - Data: `const runs = useGet('/runs', { sort }, { live: ['run'] })` gives
 *   `{data, error, loading, loadedAt, reload, put}`
 *   and reloads on stream events; wrap it in `<${Loaded} resource=${runs} isEmpty=${...} empty=${...}>${(data) =>
 *   ...}<//>`
 *   to get skeleton, error, old-data and empty states. Writing: `post`, `patch`, `remove` in data/api.js; failures are
 *   `ApiError` with `.errors[{path, message}]` for the fields of a form, or `sayError(error)` for a message.
 * - Live: `useLive(['points'], (type, data) => ...)`; `type` is `resync` after a gap, when all data must be loaded
 *   again.
 * - Curves: `<${Panel} metric request view looks onPoint />` of components/curves/panel.js. Only charts/draw.js uses
 *   Plotly. A click on a point: `onPoint=${openRollouts}` of components/curves/panel.js goes to the rollouts of that
 *   run and step. `useJumpToPanels(metrics, open)` of app/state.js lets the quick jump (Ctrl-K) open a panel.
 * - Roles: actions that change something are in `<${ForOperator}>` of components/shared/role.js, or check `mayChange`
 *   of app/state.js.
 * - Keys: `useKeys({ n: { label: 'next group', run } })`; they appear in the help (`?`) automatically.
 * - Shared components: components/shared/; numbers and times: lib/text/format.js;
 *   colours of runs: `makeRelatedLooks(groups)` in app/state.js. Title of the page: `useTitle('Runs')` of app/title.js.
 */
import { html, render, useErrorBoundary, useEffect, useState } from './dom.js';
import { currentAddress, followLinks, navigate } from './app/router.js';
import { home, findPage } from './app/pages.js';
import { loadCatalog, sayError } from './app/state.js';
import { Frame, startFrame } from './components/frame/frame.js';
import { highlightWords } from './components/frame/help_words.js';
import { Empty, Failure, Skeleton } from './components/shared/states.js';

/** The view of the current path, which is loaded when first needed. If it crashes, the frame continues to work. */
function Page() {
  const match = findPage(currentAddress.value.path);
  const [views, setViews] = useState(new Map());
  const [crash, reset] = useErrorBoundary((error) => console.error(error));
  const page = match?.page;

  useEffect(() => {
    reset();
    if (!page || views.has(page)) return;
    const keep = (/** @type {(props: any) => any} */ view) => setViews((old) => new Map(old).set(page, view));
    page.load().then(
      ({ View }) => keep(View),
      (error) => {
        console.error(error);
        keep(
          () => html`<${Failure}
            error=${{ title: 'This page could not be loaded', detail: error.message }}
            retry=${() => location.reload()}
          />`,
        );
      },
    );
  }, [page]);

  if (crash)
    return html`<${Failure}
      error=${{ title: 'Something went wrong on this page', detail: crash.message }}
      retry=${() => location.reload()}
    />`;
  if (!match)
    return html`<h1 class="visually-hidden">Page not found</h1>
    <${Empty}
      title="Page not found"
      action=${html`<a class="button" href="/runs">
        Back to runs
      </a>`}
    >
      <code>${currentAddress.value.path}</code> does not exist.
    <//>`;
  const View = views.get(page);
  return View
    ? html`<${View} ...${match.props} key=${currentAddress.value.path} />`
    : html`<div class="page">
      <${Skeleton} rows=${12} />
    </div>`;
}

const App = () => html`
  <a class="skip-link" href="#main">
    Skip to content
  </a>
  <${Frame} />
  <main id="main">
    <${Page} />
  </main>
`;

/** Starts the application. On a help page, which the service renders, it renders only the frame. */
function start() {
  startFrame();
  const frame = document.getElementById('frame');
  if (frame) {
    render(html`<${Frame} />`, frame);
    highlightWords(/** @type {Element} */ (document.getElementById('content')));
    return;
  }
  if (location.pathname === '/') navigate(home + location.search, { replace: true });
  followLinks();
  loadCatalog().catch(sayError);
  render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
}

start();
