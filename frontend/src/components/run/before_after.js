/** Two completions next to a diagnosis: from the last stored step before the onset, and from the first after it. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { findExample, isRight, passes } from '../../lib/rollouts.js';
import { takeStart } from '../../lib/text/tokens.js';
import { formatValue } from '../../lib/text/format.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { Visible } from '../rollouts/text.js';
import { marksText } from './completions_link.js';

const GROUPS = 4;
const PROMPT_CHARACTERS = 200;
const TEXT_CHARACTERS = 700;

/**
 * @param {{run: string, onset: Api.Steps, example: Api.EvidenceItem}} props `example`: completions from after the onset
 */
export function BeforeAfter({ run, onset, example }) {
  const steps = useGet('/rollouts/steps', { run });
  const stepBefore = steps.data?.items
    .filter(({ step, kind }) => kind === example.kind && step <= onset.healthy)
    .reduce((last, { step }) => Math.max(last, step), -1);
  return html`<div class="before-after">
    <${Excerpt}
      title="Before the onset"
      run=${run}
      kind=${example.kind}
      step=${stepBefore}
      marks=${[]}
    />
    <${Excerpt}
      title="After it"
      run=${run}
      kind=${example.kind}
      step=${example.step}
      marks=${example.marks}
    />
  </div>`;
}

/**
 * @param {{title: string, run: string, kind: string, step: number | undefined, marks: string[]}} props
 *   `step`: undefined while it is unknown, negative if there is none; `marks`: the required marks of the completion
 */
function Excerpt({ title, run, kind, step, marks }) {
  const hasStep = step !== undefined && step >= 0;
  const groups = useGet(hasStep ? '/rollouts' : null, { run, step, kind, limit: GROUPS });
  const example = findExample(groups.data?.items ?? [], marks);
  const href = rolloutsAddress(run, { step, kind });
  return html`<section class="excerpt" aria-label=${title}>
    <header>
      <h4>${title}</h4>
      ${hasStep && html`<a href=${href}>step ${step}</a>`}
      ${example && html`<span>reward ${formatValue(example.completion.reward)}</span>`}
    </header>
    ${example && html`<p class="faint">${choiceText(example.completion, marks)}</p>`}
    ${
      example
        ? html`
          <div class="excerpt-prompt"><${Visible} text=${takeStart(example.group.prompt, PROMPT_CHARACTERS)} /></div>
          <div class="excerpt-text"><${Visible} text=${takeStart(example.completion.text, TEXT_CHARACTERS)} /></div>
        `
        : html`<p class="faint">${step === -1 || groups.data || groups.error ? 'No completion is stored.' : 'Loading…'}</p>`
    }
  </section>`;
}

/**
 * The position of a completion, and whether its answer is right.
 * @param {import('../../lib/rollouts.js').Completion} completion @param {string[]} marks
 */
function choiceText(completion, marks) {
  const isCorrect = isRight(completion);
  const answerText =
    isCorrect === null || marks.includes('wrong') ? '' : isCorrect ? '; its answer is right' : '; its answer is wrong';
  return marks.length && passes({ filter: marks, least: null }, completion)
    ? `One of the completions that are ${marksText({ marks })}${answerText}.`
    : `The completion with the reward nearest to the mean of its group${answerText}.`;
}
