/** The pages of the application, from the service's list (backend/http/pages.py), and the view for an address. */

/** @typedef {{path: string, label: string, menu: string, script: string}} Entry `script`: the bundle with its view */
/** @typedef {Entry & {pattern: RegExp, load: () => Promise<{View: (props: any) => any}>}} Page */

const content = document.querySelector('meta[name=pages]')?.getAttribute('content') ?? '[]';

/** Returns `/run/{run_id}` as a regular expression with a named group for each parameter. @param {string} path */
const makePattern = (path) => new RegExp(`^${path.replace(/\{(\w+)\}/g, '(?<$1>[^/]+)')}$`);

/** @type {Page[]} */
const PAGES = JSON.parse(content).map((/** @type {Entry} */ page) => ({
  ...page,
  pattern: makePattern(page.path),
  load: () => import(page.script),
}));

/** Pages in the menu, in order. */
export const menu = PAGES.filter(({ label }) => label);

/** Path to which the address `/` leads. */
export const home = PAGES[0]?.path;

/** Returns the page at an address and the props of its view, or null if there is none. @param {string} path */
export function findPage(path) {
  for (const page of PAGES) {
    const match = path.match(page.pattern);
    if (match) return { page, props: { ...match.groups } };
  }
  return null;
}

/** Returns the path of the menu entry that is marked as current. @param {string} path */
export function findMarkedPage(path) {
  const page = findPage(path)?.page;
  return page && (page.menu || page.path);
}
