/** A completion in turns: the policy's text, its tool calls, and their results. Renders text nodes only. */
import { html } from '../../dom.js';
import { formatValue } from '../../lib/text/format.js';
import { LongText, Visible } from './text.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {Api.TextBlock} TextBlock */

/** The outcome of a call in words. @type {Record<string, string>} */
const OUTCOMES = {
  ok: '',
  failed: 'failed',
  timeout: 'took too long',
  killed: 'ended by the sandbox',
  unanswered: 'unanswered: the limit of turns or tokens was reached',
  done: 'ended the episode',
  lost: 'lost: the environment failed',
};

/** @param {{blocks: TextBlock[], label: string}} props */
export const TurnBlocks = ({ blocks, label }) => html`<div class="turn-blocks" role="group" aria-label=${label}>
  ${blocks.map((block, index) => html`<${Block} key=${index} block=${block} label=${`${label}, part ${index + 1}`} />`)}
</div>`;

/** @param {{block: TextBlock, label: string}} props */
function Block({ block, label }) {
  const { kind, text, turn } = block;
  if (!turn) return html`<${LongText} text=${text} label=${label} />`;
  const isCall = kind === 'call';
  const outcome = lookup(OUTCOMES, turn.outcome) ?? turn.outcome;
  return html`<section class=${`turn is-${kind}`} data-turn=${kind}>
    <p class="turn-head">
      <span class="turn-kind">${isCall ? 'call' : 'observation'}</span>
      <b><${Visible} text=${turn.tool} /></b>
      ${isCall && outcome && html`<span class="mark mark-warn">${outcome}</span>`}
      ${!isCall && turn.is_cut && html`<span class="mark mark-warn">cut</span>`}
      ${!isCall && html`<span class="faint">${formatValue(turn.seconds)} s; not part of the loss</span>`}
    </p>
    <${LongText} text=${text} label=${`${label}: ${isCall ? 'call' : 'observation'}`} />
  </section>`;
}
