/** Addresses of saved views. */
import { address, list, toSearch } from '../url.js';

/** @param {Api.ViewItem} view */
export function viewAddress(view) {
  if (view.page === 'compare') {
    const { experiment, ...settings } = /** @type {Record<string, string>} */ (view.settings);
    return experiment && !settings.runs && !view.query
      ? `/experiment/${encodeURIComponent(experiment)}${toSearch(Object.entries(settings))}`
      : `/compare${toSearch(Object.entries({ ...settings, ...(view.query && { query: view.query }) }))}`;
  }
  const { query: q, status, verdict, tag, variant, experiment, archived, sort, group, columns } = view;
  const filters = { q, status, verdict, tag, variant, experiment, archived: archived ? '1' : '', sort, group };
  return address('/runs', { ...filters, columns: columns ? list().write(columns) : '' });
}

/**
 * Returns the saved part of a comparison's address: all settings, and the query or the chosen runs.
 * @param {string} search @param {string[]} names of the page's parameters
 * @param {{query: string, experiment: string, runs: string[]}} choice `runs`: the compared runs, because an address
 *   that chose them by a query does not list them
 */
export function makeComparisonView(search, names, { query, experiment, runs }) {
  const parameters = Object.fromEntries([...new URLSearchParams(search)].filter(([name]) => names.includes(name)));
  const { runs: runIds, query: _, ...settings } = parameters;
  const comparison = experiment ? { experiment } : { runs: runIds || list().write(runs) };
  return { page: /** @type {const} */ ('compare'), query, settings: { ...settings, ...(query ? {} : comparison) } };
}
