/** Sends the form once, then opens the page of the new experiment or fork. */
import { useEffect, useState } from '../../dom.js';
import { navigate } from '../../app/router.js';
import { usePostOnce } from '../../data/post_once.js';
import { comparisonAddress, experimentAddress } from '../../lib/runs/addresses.js';

/**
 * Sends the form once. A second click or a retry with the same content does not launch it again.
 * @typedef {import('../../data/api.js').ApiError} ApiError
 * @typedef {{isLaunching: boolean, failure: ApiError | null}} LaunchState
 * @param {import('../../lib/launch/form.js').Request[]} requests @param {import('./fork.js').Fork | null} fork
 */
export function useLaunch(requests, fork) {
  const [state, setState] = useState(/** @type {LaunchState} */ ({ isLaunching: false, failure: null }));
  const postOnce = usePostOnce();
  const content = JSON.stringify(requests);
  const isSearch = /** @type {any} */ (requests[0]?.body)?.sweep?.method === 'search';
  useEffect(() => setState({ isLaunching: false, failure: null }), [content]);
  const onLaunch = async () => {
    setState({ isLaunching: true, failure: null });
    try {
      navigate(chooseAddress(await postOnce(requests), fork, isSearch));
    } catch (failure) {
      setState({ isLaunching: false, failure: /** @type {ApiError} */ (failure) });
    }
  };
  return { ...state, onLaunch };
}

/**
 * Returns the address of the launched experiment, of the fork, or of several forks with their parent.
 * @param {{id: string}[]} launchedItems @param {import('./fork.js').Fork | null} fork @param {boolean} isSearch
 */
function chooseAddress(launchedItems, fork, isSearch) {
  if (!fork) return experimentAddress(launchedItems[0].id, { tab: isSearch ? 'search' : '' });
  return launchedItems.length === 1
    ? `/run/${launchedItems[0].id}`
    : comparisonAddress([fork.run.id, ...launchedItems.map(({ id }) => id)]);
}
