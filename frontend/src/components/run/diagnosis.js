/** The diagnosis of a run: its verdict, when it began, ranked causes with their evidence, and what to try. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { VERDICTS, stepsText } from '../../lib/runs/verdicts.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { breakdownAddress } from '../../lib/breakdown.js';
import { changedFields } from '../../lib/trials.js';
import { address } from '../../lib/url.js';
import { Icon } from '../shared/icons.js';
import { Trials } from '../trials/trials.js';
import { TryRemedy } from '../trials/try_remedy.js';
import { lookup } from '../../lib/lookup.js';

/** @param {{run: Api.RunItem}} props */
export function Diagnosis({ run }) {
  const diagnosis = useGet(`/runs/${run.id}/diagnosis`, undefined, {
    live: ['run', 'points'],
    concerns: (data) => data.id === run.id || data.run === run.id,
    every: 15000,
  });
  if (diagnosis.error) return html`<p class="quiet" role="alert">Diagnosis unavailable: ${diagnosis.error.message}</p>`;
  return diagnosis.data ? html`<${DiagnosisReport} run=${run} diagnosis=${diagnosis.data} />` : null;
}

/** @param {{run: Api.RunItem, diagnosis: Api.DiagnosisItem}} props */
function DiagnosisReport({ run, diagnosis }) {
  const { verdict, causes, warnings, unjudged } = diagnosis;
  const { title, icon, tone } = VERDICTS[verdict];
  const shown = useGet(
    diagnosis.onset ? '/rollouts/evidence' : null,
    { run: run.id },
    { live: ['run', 'points'], concerns: (data) => data.id === run.id || data.run === run.id, every: 15000 },
  );
  const evidence = shown.data?.items ?? [];
  const first = evidence.find(({ cause }) => cause === '');
  const isOpen = !['healthy', 'inconclusive'].includes(verdict);
  return html`<section class=${`diagnosis diagnosis-${tone}`} aria-label="Diagnosis">
    <h2><${Icon} name=${icon} /> ${title}</h2>
    <p>${summaryOf(diagnosis)}</p>
    ${
      diagnosis.onset &&
      first &&
      html`<p>
        <a class="button button-small" href=${address('/rollouts', { run: run.id, step: first.step })}>
          First bad rollouts
        </a>${' '}
        <a
          class="button button-small"
          href=${breakdownAddress(run.id, diagnosis.goal, { onset: diagnosis.onset })}
        >
          Why did it change?
        </a>
      </p>`
    }
    ${isOpen && html`<${Causes} run=${run} causes=${causes} evidence=${evidence} />`}
    <${Warnings} warnings=${warnings} />
    ${
      isOpen &&
      unjudged.length > 0 &&
      html`<details class="more">
        <summary>Could not be judged (${unjudged.length})</summary>
        <ul>
          ${unjudged.map((cause) => html`<li key=${cause.cause}>${cause.title}: the log lacks ${cause.needs}</li>`)}
        </ul>
      </details>`
    }
    <${Trials} run=${run.id} config=${run.config} />
    <p class="faint">
      Computed from the run's metrics. <a href="/help/diagnosis">How it works, and its error rates</a>
    </p>
  </section>`;
}

/** What happened to the goal, in a sentence or two. @param {Api.DiagnosisItem} diagnosis */
function summaryOf({ verdict, goal, best, best_step: at, end, note, fall, onset, first_signals: signals }) {
  const numbers = `a best of about ${formatValue(best)} (step ${at})`;
  const first = signals.length ? ` First signal: ${signals.join(', ')}, ${stepsText(onset)}.` : '';
  const added = note ? ` Note: ${note}.` : '';
  switch (verdict) {
    case 'healthy':
      return `${goal} reached ${numbers} and ended at ${formatValue(end)}.${added}`;
    case 'inconclusive':
      return `Too little to judge: ${note}.`;
    case 'never_learned':
      return `${goal} never rose above its noise; it ended at ${formatValue(end)}.${first}${added}`;
    default:
      return `${goal} fell from ${numbers} to ${formatValue(end)}, ${stepsText(fall)}.${first}${added}`;
  }
}

/** @param {{run: Api.RunItem, causes: Api.CauseItem[], evidence: Api.EvidenceItem[]}} props */
function Causes({ run, causes, evidence }) {
  const shownBy = new Map(evidence.map((item) => [item.cause, item]));
  if (!causes.length)
    return html`<p class="quiet">
      No other metric changed before that. This log does not show the cause. <${TryRemedy} run=${run} />
    </p>`;
  const rootCauses = causes.filter((cause) => !cause.explained_by);
  const explainedCauses = causes.filter((cause) => cause.explained_by);
  const titles = new Map(causes.map((cause) => [cause.cause, cause.title]));
  return html`<ol class="diagnosis-causes">
      ${rootCauses.map(
        (cause) => html`<${Cause}
          key=${cause.cause}
          run=${run}
          cause=${cause}
          alone=${rootCauses.length === 1}
          shown=${shownBy.get(cause.cause)}
        />`,
      )}
    </ol>
    ${
      rootCauses.filter(({ remedy }) => Object.keys(remedy.changes).length > 0).length > 1 &&
      html`<p>
        <${TryRemedy} run=${run} cause=${rootCauses[0].cause} isSearch /> tries these remedies one by one until one
        heals.
      </p>`
    }
    ${
      explainedCauses.length > 0 &&
      html`<details class="more">
        <summary>Consequences (${explainedCauses.length})</summary>
        <ul>
          ${explainedCauses.map(
            (cause) => html`<li key=${cause.cause}>
              ${cause.title}, ${stepsText(cause.onset)}: follows from “${titles.get(cause.explained_by)}”.
              ${' '}${cause.evidence[0]}. <${CompletionsLink} run=${run.id} shown=${shownBy.get(cause.cause)} />
            </li>`,
          )}
        </ul>
      </details>`
    }`;
}

/** Marks whose names are no adjectives. @type {Record<string, string>} */
const MARK_WORDS = { same_reward: 'equally rewarded', language: 'mixed-script' };

/**
 * Completions that show a cause, at the first stored step that has some.
 * @param {{run: string, shown: Api.EvidenceItem | undefined}} props
 */
function CompletionsLink({ run, shown }) {
  if (!shown) return null;
  const { step, kind, marks, completions } = shown;
  const href = address('/rollouts', {
    run,
    step,
    kind: kind === 'train' ? undefined : kind,
    filter: marks.join() || undefined,
  });
  const words = marks.map((mark) => lookup(MARK_WORDS, mark) ?? mark).join(' and ');
  return html`<a href=${href}>${`${plural(completions, `${words} completion`.trim())} of step ${step}`}</a>`;
}

/**
 * @param {{run: Api.RunItem, cause: Api.CauseItem, alone: boolean, shown: Api.EvidenceItem | undefined}} props
 */
function Cause({ run, cause, alone, shown }) {
  const { title, share, tier, onset, evidence, remedy } = cause;
  return html`<li>
    <h3>
      ${title}${' '}
      <span class="faint">${stepsText(onset)}${alone ? '' : `, ${Math.round(100 * share)} % of the evidence`}</span>
    </h3>
    <ul>
      ${evidence.map((words, i) => html`<li key=${i}>${words}</li>`)}
      ${shown && html`<li>Read <${CompletionsLink} run=${run.id} shown=${shown} /></li>`}
      ${tier === 'consistent' && html`<li class="quiet">This is consistent with the cause and does not prove it.</li>`}
    </ul>
    <p>
      <b>Try:</b> ${remedy.words} <span class="faint">(${remedy.source})</span>
      ${
        Object.keys(remedy.changes).length > 0 &&
        html`${' '}
          <code>
            ${changedFields(run.config, remedy.changes).join(', ')}
          </code>`
      }${' '}
      <${TryRemedy} run=${run} cause=${cause.cause} />
    </p>
  </li>`;
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
