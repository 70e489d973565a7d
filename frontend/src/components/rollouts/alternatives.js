/** The likeliest alternatives to the token under the pointer. */
import { html } from '../../dom.js';
import { listAlternatives } from '../../lib/text/tokens.js';

/** @param {{tokens: Api.TokensResponse, index: number}} props */
export function Alternatives({ tokens, index }) {
  const alternatives = listAlternatives(tokens, index);
  if (!alternatives.length) return null;
  return html`<span class="alternatives" aria-label="The likeliest tokens here">
    <span class="faint">likeliest:</span>
    ${alternatives.map(
      ({ id, text, probability, isDrawn }) => html`<span key=${id} title=${`id ${id}${isDrawn ? ', drawn' : ''}`}>
        ${text === null ? html`<span class="faint">id ${id}</span>` : html`<bdi class="readout-token">${text}</bdi>`}
        ${' '}${isDrawn ? html`<b>${probability}</b>` : probability}
      </span>`,
    )}
  </span>`;
}
