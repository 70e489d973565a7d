/** The address: only its path and query string determine the content of a page. */
import { signal } from '../dom.js';
import { findPage } from './pages.js';
import { decode, encode } from '../lib/url.js';

/** @typedef {{path: string, search: string}} Address */

/** @returns {Address} */
const readAddress = () => ({ path: location.pathname, search: location.search });

/** @type {import('../../vendor/signals.js').Signal<Address>} */
export const currentAddress = signal(readAddress());

/**
 * Navigates to an address of this application.
 * @param {string} address path with query, e.g. `/compare?runs=a,b`
 * @param {{replace?: boolean}} [options] `replace` leaves no entry in the history
 */
export function navigate(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', address);
  currentAddress.value = readAddress();
}

/**
 * Returns the page's view state from the query string, and a function that changes it there. Parameters that are not in
 * the spec are kept, and defaults are not written.
 * @template {import('../lib/url.js').Spec} S
 * @param {S} spec
 * @returns {[import('../lib/url.js').Values<S>, (changes: object, options?: {push?: boolean}) => void]}
 */
export function useQuery(spec) {
  const values = decode(currentAddress.value.search, spec);
  const change = (/** @type {object} */ changes, { push = false } = {}) => {
    const current = currentAddress.peek();
    navigate(current.path + encode(current.search, changes, spec), { replace: !push });
  };
  return [values, change];
}

/** Handles clicks on links, so that they navigate inside the application without reloading the page. */
export function followLinks() {
  addEventListener('popstate', () => {
    currentAddress.value = readAddress();
  });
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element && event.target.closest('a[href]');
    if (!(link instanceof HTMLAnchorElement) || !isPlainClick(event) || !isInside(link)) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}

const isPlainClick = (/** @type {MouseEvent} */ event) =>
  event.button === 0 && !event.defaultPrevented && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);

const isInside = (/** @type {HTMLAnchorElement} */ link) =>
  link.origin === location.origin && !link.target && !link.hasAttribute('download') && findPage(link.pathname) !== null;
