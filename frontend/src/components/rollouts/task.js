/** The task of a completion in one line: the prompt and the expected answer. */
import { html } from '../../dom.js';
import { toOneLine } from '../../lib/text/tokens.js';
import { Visible } from './text.js';

const MAX_EXCERPT = 400;

/** @param {{prompt: string, answer: string}} props */
export const Task = ({ prompt, answer }) => html`<p class="rollout-task">
  <span class="rollout-prompt" title="Prompt"><${Visible} text=${toOneLine(prompt.slice(0, MAX_EXCERPT))} /></span>
  <span class="rollout-expected" title="Expected answer">
    <span class="faint">expected</span>
    <b><${Visible} text=${answer ? toOneLine(answer.slice(0, MAX_EXCERPT)) : '–'} /></b>
  </span>
</p>`;
