/** A policy's text, as text nodes only, with hidden characters as code points. This module also loads its tokens. */
import { html, useEffect, useMemo, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { takeStart } from '../../lib/text/tokens.js';
import { splitVisible } from '../../lib/text/visible.js';
import { formatBytes } from '../../lib/text/format.js';

export const MAX_SHOWN = 20_000;
const MAX_KEPT = 300;

/** @typedef {Api.TokensResponse} Tokens */
/** @typedef {{data?: Tokens, error?: Error}} LoadedTokens */

/** @type {Map<string, Promise<Tokens>>} tokens never change, so each completion is requested once */
const requests = new Map();

/** @param {string} id @returns {Promise<Tokens>} */
function loadTokens(id) {
  const request = requests.get(id);
  if (request) return request;
  const promise = get(`/rollouts/${id}/tokens`);
  promise.catch(() => requests.delete(id));
  requests.set(id, promise);
  if (requests.size > MAX_KEPT) requests.delete([...requests.keys()][0]);
  return promise;
}

/**
 * Loads the tokens of a completion on request.
 * @param {string} id
 * @param {boolean} isEnabled
 * @returns {LoadedTokens}
 */
export function useTokens(id, isEnabled) {
  const [state, setState] = useState(/** @type {LoadedTokens & {id: string}} */ ({ id: '' }));
  useEffect(() => {
    if (!isEnabled) return undefined;
    let current = true;
    const update = (/** @type {LoadedTokens} */ change) => current && setState({ id, ...change });
    loadTokens(id).then(
      (data) => update({ data }),
      (error) => update({ error }),
    );
    return () => {
      current = false;
    };
  }, [id, isEnabled]);
  return state.id === id ? state : {};
}

/** Untrusted text with visible hidden characters. @param {{text: string}} props */
export function Visible({ text }) {
  return splitVisible(text).map((segment) =>
    segment.isCode ? html`<span class="code-point">${segment.text}</span>` : segment.text,
  );
}

/**
 * Plain text, of which a long rest is shown on request.
 * @param {{text: string, label: string, class?: string}} props
 */
export function LongText({ text, label, class: name = '' }) {
  const [all, setAll] = useState(false);
  const shownText = all ? text : takeStart(text, MAX_SHOWN);
  const content = useMemo(() => html`<${Visible} text=${shownText} />`, [shownText]);
  return html`<div class=${`model-text ${name}`} tabindex="0" role="group" aria-label=${label}>
    ${content}
    ${shownText.length < text.length && html`<${ShowMore} remainingBytes=${text.length - shownText.length} onMore=${() => setAll(true)} />`}
  </div>`;
}

/** @param {{remainingBytes: number, onMore: () => void}} props */
export const ShowMore = ({
  remainingBytes,
  onMore,
}) => html`<button type="button" class="button button-small model-more" onClick=${onMore}>
  ${formatBytes(remainingBytes)} more
</button>`;
