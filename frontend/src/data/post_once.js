/** Posts with an idempotency key, so that a second click or a retry after a failure does not create anything twice. */
import { useMemo } from '../dom.js';
import { post } from './api.js';

const makeRandomKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/**
 * Returns a function that posts the requests of a form in sequence. Equal content has the same key.
 * @returns {(requests: {path: string, body: object}[]) => Promise<any[]>} returns the answers in the same order
 */
export function postOnce() {
  let sent = { content: '', key: '' };
  return async (requests) => {
    const content = JSON.stringify(requests);
    if (sent.content !== content) sent = { content, key: makeRandomKey() };
    const { key } = sent;
    const answers = [];
    for (const [i, { path, body }] of requests.entries())
      answers.push(await post(path, body, { headers: { 'Idempotency-Key': `${key}-${i}` } }));
    return answers;
  };
}

/** Returns `postOnce` for the life of a component. */
export const usePostOnce = () => useMemo(postOnce, []);
