/** The diagnosis of a run as a story: what happened, the likely cause, and what to do next. */
import { html, useRef } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { VERDICTS, stepsText } from '../../lib/runs/verdicts.js';
import { arrangeCauses, tellStory } from '../../lib/runs/story.js';
import { breakdownAddress } from '../../lib/breakdown.js';
import { describeChangedFields } from '../../lib/trials.js';
import { formatPercent, formatValue } from '../../lib/text/format.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';
import { Skeleton } from '../shared/states.js';
import { Icon } from '../shared/icons.js';
import { Sparkline } from '../shared/sparkline.js';
import { ForkLink } from './fork_link.js';
import { Trials, useTrials } from '../trials/trials.js';
import { TryRemedy } from '../trials/try_remedy.js';
import { BeforeAfter } from './before_after.js';
import { CompletionsLink } from './completions_link.js';
import { useGlance } from './glance.js';

/**
 * The content below is shown when the height of the diagnosis is known, so that the layout does not shift.
 * @param {{run: Api.RunItem, children?: any}} props
 */
export function Diagnosis({ run, children }) {
  const options = {
    live: ['run', 'points'],
    concerns: (/** @type {any} */ data) => data.id === run.id || data.run === run.id,
    every: 15000,
  };
  const diagnosis = useGet(`/runs/${run.id}/diagnosis`, undefined, options);
  const evidence = useGet(run.onset ? '/rollouts/evidence' : null, { run: run.id }, options);
  const trials = useTrials({ run: run.id });
  const isDrawn = useRef(false);
  isDrawn.current ||= [diagnosis, evidence, trials].every(({ loading }) => !loading);
  if (!isDrawn.current) return html`<${Skeleton} rows=${12} label="Loading the diagnosis" />`;
  return html`
    ${diagnosis.error && html`<p class="quiet" role="alert">Diagnosis unavailable: ${diagnosis.error.message}</p>`}
    ${
      diagnosis.data &&
      html`<${DiagnosisReport}
        run=${run}
        diagnosis=${diagnosis.data}
        evidence=${evidence.data?.items ?? []}
        trials=${trials}
      />`
    }
    ${children}
  `;
}

/**
 * @typedef {{run: Api.RunItem, diagnosis: Api.DiagnosisItem, evidence: Api.EvidenceItem[]}} Report
 * @param {Report & {trials: ReturnType<typeof useTrials>}} props
 */
function DiagnosisReport({ run, diagnosis, evidence, trials }) {
  const { verdict, causes, warnings, unjudged, onset } = diagnosis;
  const { title, icon, tone } = VERDICTS[verdict];
  const isIll = !['healthy', 'inconclusive'].includes(verdict);
  const isMarked = (/** @type {Api.EvidenceItem} */ { marks }) => marks.length > 0;
  const shownEvidence = evidence.filter(isMarked).find(({ cause }) => cause === causes[0]?.cause);
  const example = shownEvidence ?? evidence.find(isMarked) ?? evidence[0];
  return html`<section class=${`diagnosis diagnosis-${tone}`} aria-label="Diagnosis">
    <h2 class=${`verdict-${tone}`}><${Icon} name=${icon} /> ${title}</h2>
    ${
      isIll
        ? html`<div class="diagnosis-story">
          <${WhatHappened} run=${run} diagnosis=${diagnosis} />
          <${LikelyCause} run=${run} causes=${causes} evidence=${evidence} />
          <${Next} run=${run} diagnosis=${diagnosis} evidence=${evidence} trials=${trials.data?.items ?? []} />
        </div>`
        : html`<p>${tellStory(diagnosis, run).join(' ')}</p>`
    }
    ${isIll && onset && example && html`<${BeforeAfter} run=${run.id} onset=${onset} example=${example} />`}
    <${Warnings} warnings=${warnings} />
    ${
      isIll &&
      unjudged.length > 0 &&
      html`<details class="more">
        <summary>Could not be judged (${unjudged.length})</summary>
        <ul>
          ${unjudged.map((cause) => html`<li key=${cause.cause}>${cause.title}: the log lacks ${cause.needs}</li>`)}
        </ul>
      </details>`
    }
    <${Trials} trials=${trials} config=${run.config} />
    <p class="faint">
      Computed from the run's metrics. <a href="/help/diagnosis">How it works, and its error rates</a>
    </p>
  </section>`;
}

/** @param {{run: Api.RunItem, diagnosis: Api.DiagnosisItem}} props */
function WhatHappened({ run, diagnosis }) {
  const { goal, best, end, onset, fall } = diagnosis;
  const series = useGlance(run.id, goal);
  return html`<section>
    <h3>What happened</h3>
    ${tellStory(diagnosis, run).map((sentence) => html`<p key=${sentence}>${sentence}</p>`)}
    ${
      goal &&
      html`<figure class="diagnosis-goal">
        <${Sparkline} series=${series} band=${onset} markedStep=${fall?.sick} label=${`${goal} over the steps`} />
        <figcaption class="faint">
          ${goal}${onset && '; band: onset'}${fall && '; line: the fall is certain'}. Smoothed, it went from
          ${' '}${formatValue(best)} to ${formatValue(end)}.
        </figcaption>
      </figure>`
    }
  </section>`;
}

/** @param {{run: Api.RunItem, causes: Api.CauseItem[], evidence: Api.EvidenceItem[]}} props */
function LikelyCause({ run, causes, evidence }) {
  const { rootCauses, consequences } = arrangeCauses(causes);
  const titles = new Map(causes.map((cause) => [cause.cause, cause.title]));
  return html`<section>
    <h3>Likely cause</h3>
    ${!causes.length && html`<p>No other metric changed before that. This log does not show the cause.</p>`}
    <ol class="diagnosis-causes">
      ${rootCauses.map(
        (cause) => html`<li key=${cause.cause}>
          <h4>${cause.title}</h4>
          <p class="faint">
            ${cause.is_in_config && 'in the config, '}
            ${cause.tier === 'specific' ? 'specific evidence' : 'consistent with the cause, no proof'}, ${stepsText(cause.onset)}
            ${rootCauses.length > 1 && `, ${formatPercent(cause.share)} of the evidence`}
          </p>
          <ul>
            ${cause.evidence.map((words) => html`<li key=${words}>${words}</li>`)}
          </ul>
        </li>`,
      )}
    </ol>
    ${
      consequences.length > 0 &&
      html`<details class="more">
        <summary>Consequences (${consequences.length})</summary>
        <ul>
          ${consequences.map(
            (cause) => html`<li key=${cause.cause}>
              ${cause.title}, ${stepsText(cause.onset)}: follows from “${titles.get(cause.explained_by)}”.
              ${' '}${cause.evidence[0]}.${' '}
              <${CompletionsLink} run=${run.id} evidence=${evidence.find((item) => item.cause === cause.cause)} />
            </li>`,
          )}
        </ul>
      </details>`
    }
  </section>`;
}

/** @param {Report & {trials: Api.TrialItem[]}} props */
function Next({ run, diagnosis, evidence, trials }) {
  const { rootCauses, remedied, knobs } = arrangeCauses(diagnosis.causes);
  const confirmedArm = trials.flatMap((trial) =>
    trial.verdict.arms.filter(isConfirmed).map((arm) => ({ trial, arm })),
  )[0];
  const [first, ...otherCauses] = remedied;
  const start = evidence.find(({ cause }) => cause === '');
  return html`<section>
    <h3>Next</h3>
    ${first && html`<${RemedyText} run=${run} cause=${first} isNamed=${first !== rootCauses[0]} />`}
    ${confirmedArm && html`<${Confirmed} run=${run} arm=${confirmedArm.arm} remedy=${first?.remedy} />`}
    <p class="toolbar">
      ${confirmedArm && html`<${ForkLink} run=${run} step=${confirmedArm.trial.fork.step} look="button button-primary" />`}
      ${
        knobs > 0
          ? html`<${TryRemedy} run=${run} cause=${first.cause} look=${confirmedArm ? 'button' : 'button button-primary'} />`
          : html`<${TryRemedy} run=${run} look="button" />`
      }
      ${knobs > 1 && html`<${TryRemedy} run=${run} cause=${first.cause} isSearch look="button" />`}
    </p>
    ${
      otherCauses.length > 0 &&
      html`<details class="more">
        <summary>Other remedies (${otherCauses.length})</summary>
        ${otherCauses.map(
          (cause, i) => html`
            <${RemedyText} key=${cause.cause} run=${run} cause=${cause} isNamed />
            ${i + 1 < knobs && html`<${TryRemedy} run=${run} cause=${cause.cause} />`}
          `,
        )}
      </details>`
    }
    <ul class="diagnosis-links">
      ${rootCauses.map((cause) => {
        const evidenceItem = evidence.find((item) => item.cause === cause.cause && item.marks.length > 0);
        return (
          evidenceItem &&
          html`<li key=${cause.cause}>Read <${CompletionsLink} run=${run.id} evidence=${evidenceItem} /></li>`
        );
      })}
      ${
        start &&
        html`
          <li><a href=${rolloutsAddress(run.id, { step: start.step })}>First rollouts after the onset: step ${start.step}</a></li>
          <li>
            <a href=${breakdownAddress(run.id, diagnosis.goal, { onset: diagnosis.onset, split: 'flag' })}>
              Why did it change?
            </a>
          </li>
        `
      }
    </ul>
  </section>`;
}

const MAX_P = 0.05;

/** Returns whether an ended trial shows that these changes help. @param {Api.ArmResult} arm */
const isConfirmed = ({ p, spared }) => typeof p === 'number' && p <= MAX_P && spared > 0;

/**
 * The success rate of the changes in a trial's arm. They are named unless they equal those of the remedy above.
 * @param {{run: Api.RunItem, arm: Api.ArmResult, remedy?: Api.RemedyItem}} props
 */
function Confirmed({ run, arm, remedy }) {
  const changes = describeChangedFields(run.config, arm.changes);
  const isRemedy = remedy && describeChangedFields(run.config, remedy.changes).join() === changes.join();
  return html`<p>
    <b>Confirmed by a trial:</b> with ${isRemedy ? 'this remedy' : 'these changes'} ${arm.spared} of
    ${' '}${arm.spared + arm.recurred} runs stayed well (p ${formatValue(arm.p)}).
    ${!isRemedy && changes.map((change) => html`<code class="diagnosis-change" key=${change}>${change}</code>`)}
  </p>`;
}

/** @param {{run: Api.RunItem, cause: Api.CauseItem, isNamed: boolean}} props `isNamed`: with the cause's name */
function RemedyText({ run, cause: { title, remedy }, isNamed }) {
  const changes = describeChangedFields(run.config, remedy.changes);
  return html`<p>
    ${isNamed && html`<b>${title}:</b>${' '}`}${remedy.words} <span class="faint">(${remedy.source})</span>
    ${changes.map((change) => html`<code class="diagnosis-change" key=${change}>${change}</code>`)}
  </p>`;
}

/** @param {{warnings: Api.FindingItem[]}} props */
function Warnings({ warnings }) {
  if (!warnings.length) return null;
  return html`<details class="more">
    <summary>Warnings (${warnings.length}): changes that did not make the goal fall</summary>
    <ul>
      ${warnings.map(
        ({ cause, title, onset, evidence }) => html`<li key=${cause}>
          ${title}, ${stepsText(onset)}: ${evidence.join('; ')}.
        </li>`,
      )}
    </ul>
  </details>`;
}
