/** Posts under an idempotency key, so that a second press or a retry after a failure creates nothing twice. */
import { useMemo } from '../dom.js';
import { post } from './api.js';

const randomKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/**
 * Posts the requests of one form in turn; their keys stay as long as their content does.
 * @returns {(requests: {path: string, body: object}[]) => Promise<any[]>} the answers, in the same order
 */
export function postOnce() {
  let sent = { content: '', key: '' };
  return async (requests) => {
    const content = JSON.stringify(requests);
    if (sent.content !== content) sent = { content, key: randomKey() };
    const { key } = sent;
    const answers = [];
    for (const [i, { path, body }] of requests.entries())
      answers.push(await post(path, body, { headers: { 'Idempotency-Key': `${key}-${i}` } }));
    return answers;
  };
}

/** `postOnce` for the life of a component. */
export const usePostOnce = () => useMemo(postOnce, []);
