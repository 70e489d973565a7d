/** Sends the form once, then opens the page of the new experiment or fork. */
import { useEffect, useState } from '../../dom.js';
import { navigate } from '../../app/router.js';
import { usePostOnce } from '../../data/post_once.js';
import { comparisonAddress, experimentAddress } from '../../lib/runs/addresses.js';

/**
 * Sends the form once. A second click or a retry with the same content does not launch it again.
 * @typedef {import('../../data/api.js').ApiError} ApiError
 * @typedef {{launching: boolean, failure: ApiError | null}} LaunchState
 * @param {import('../../lib/launch/form.js').Request[]} requests @param {import('./fork.js').Fork | null} fork
 */
export function useLaunch(requests, fork) {
  const [state, setState] = useState(/** @type {LaunchState} */ ({ launching: false, failure: null }));
  const postOnce = usePostOnce();
  const content = JSON.stringify(requests);
  const isSearch = /** @type {any} */ (requests[0]?.body)?.sweep?.method === 'search';
  useEffect(() => setState({ launching: false, failure: null }), [content]);
  const onLaunch = async () => {
    setState({ launching: true, failure: null });
    try {
      navigate(addressOfLaunched(await postOnce(requests), fork, isSearch));
    } catch (failure) {
      setState({ launching: false, failure: /** @type {ApiError} */ (failure) });
    }
  };
  return { ...state, onLaunch };
}

/**
 * Returns the address of the launched experiment, of the fork, or of several forks with their parent.
 * @param {{id: string}[]} launched @param {import('./fork.js').Fork | null} fork @param {boolean} isSearch
 */
function addressOfLaunched(launched, fork, isSearch) {
  if (!fork) return experimentAddress(launched[0].id, { tab: isSearch ? 'search' : '' });
  return launched.length === 1
    ? `/run/${launched[0].id}`
    : comparisonAddress([fork.run.id, ...launched.map(({ id }) => id)]);
}
