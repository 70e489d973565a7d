/** The formula of a loss with the numbers of a batch. */
import { html } from '../../dom.js';
import { formatValue } from '../../lib/text/format.js';
import { lookup } from '../../lib/lookup.js';

/** @param {{variant: Api.WhatIfVariant}} props */
export function Substituted({ variant }) {
  const { weight = '', terms = {}, loss } = variant;
  const at = (/** @type {string} */ name) => formatValue(lookup(variant.numbers, name) ?? null);
  const parts = Object.entries(terms).map(([name, value]) => `${formatValue(value)} (${name})`);
  const isBounded = 'clipped_below' in (variant.numbers ?? {});
  return html`<ul class="substituted" aria-label="With this batch’s numbers">
    <li>B = ${at('completions')} completions, P = ${at('prompts')} prompts</li>
    <li>Σ|o| = ${at('tokens')} tokens, |o| from ${at('shortest')} to ${at('longest')}</li>
    <li>w<sub>i</sub> = ${weight}: from ${at('weight_lowest')} to ${at('weight_highest')}</li>
    <li>
      Â: mean ${at('advantage_mean')}, standard deviation ${at('advantage_std')}, from${' '}
      ${at('advantage_lowest')} to ${at('advantage_highest')}
    </li>
    ${
      isBounded &&
      html`<li>
        clipped: ${at('clipped_below')} tokens below, ${at('clipped_above')} above,${' '}
        ${at('clipped_dual')} by the dual cap
      </li>`
    }
    <li>L = ${parts.length ? `${parts.join(' + ')} = ` : ''}${formatValue(loss ?? null)}</li>
  </ul>`;
}
