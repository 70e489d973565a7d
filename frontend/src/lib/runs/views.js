/** Saved views as addresses of their pages. */
import { address, list, toSearch } from '../url.js';

/** @param {Api.ViewItem} view */
export function addressOfView(view) {
  if (view.page === 'compare')
    return `/compare${toSearch(Object.entries({ ...view.settings, ...(view.query && { query: view.query }) }))}`;
  const { query: q, status, verdict, tag, variant, experiment, archived, sort, group, columns } = view;
  const filters = { q, status, verdict, tag, variant, experiment, archived: archived ? '1' : '', sort, group };
  return address('/runs', { ...filters, columns: columns ? list().write(columns) : '' });
}

/**
 * What a view of Compare keeps of an address: all settings, and which runs: a query's, else those that are chosen.
 * @param {string} search @param {string[]} names of the page's parameters @param {string} query
 * @param {string[]} runs that are compared now; an address that chose them by a query does not name them
 */
export function viewOfComparison(search, names, query, runs) {
  const parameters = Object.fromEntries([...new URLSearchParams(search)].filter(([name]) => names.includes(name)));
  const { runs: named, experiment, query: before, ...settings } = parameters;
  const chosen = named || before ? { runs: named || list().write(runs) } : { experiment };
  return { page: /** @type {const} */ ('compare'), query, settings: { ...settings, ...(query ? {} : chosen) } };
}
