/** The formula of a loss with the numbers of a batch. */
import { html } from '../../dom.js';
import { formatValue } from '../../lib/text/format.js';
import { lookup } from '../../lib/lookup.js';

/** @param {{variant: Api.WhatIfVariant}} props */
export function Substituted({ variant }) {
  const { weight = '', terms = {}, loss } = variant;
  const formatNumber = (/** @type {string} */ name) => formatValue(lookup(variant.numbers, name) ?? null);
  const termTexts = Object.entries(terms).map(([name, value]) => `${formatValue(value)} (${name})`);
  const isBounded = 'clipped_below' in (variant.numbers ?? {});
  return html`<ul class="substituted" aria-label="With this batch’s numbers">
    <li>B = ${formatNumber('completions')} completions, P = ${formatNumber('prompts')} prompts</li>
    <li>Σ|o| = ${formatNumber('tokens')} tokens, |o| from ${formatNumber('shortest')} to ${formatNumber('longest')}</li>
    <li>w<sub>i</sub> = ${weight}: from ${formatNumber('weight_lowest')} to ${formatNumber('weight_highest')}</li>
    <li>
      Â: mean ${formatNumber('advantage_mean')}, standard deviation ${formatNumber('advantage_std')}, from${' '}
      ${formatNumber('advantage_lowest')} to ${formatNumber('advantage_highest')}
    </li>
    ${
      isBounded &&
      html`<li>
        clipped: ${formatNumber('clipped_below')} tokens below, ${formatNumber('clipped_above')} above,${' '}
        ${formatNumber('clipped_dual')} by the dual cap
      </li>`
    }
    <li>L = ${termTexts.length ? `${termTexts.join(' + ')} = ` : ''}${formatValue(loss ?? null)}</li>
  </ul>`;
}
