/** Verdicts of a variant's runs. */
import { html } from '../../dom.js';
import { VERDICTS, verdictText, verdictTitle } from '../../lib/runs/verdicts.js';

/**
 * How many runs of a variant have each verdict; those that fell lead to their pages.
 * @param {{counts: ReturnType<typeof import('../../lib/runs/summary.js').verdictCounts>}} props
 */
export function Verdicts({ counts }) {
  if (!counts.length) return html`<span class="faint">–</span>`;
  return html`<ul class="verdicts">
    ${counts.map(
      ({ verdict, runs }) => html`<li key=${verdict}>
        <span class=${`verdict-${VERDICTS[verdict].tone}`}>${runs.length} ${verdictTitle(verdict)}</span>
        ${
          ['collapsed', 'declining'].includes(verdict) &&
          html`<span class="faint">
            ${' '}
            ${runs.map(
              (run) => html`<a key=${run.id} href=${`/run/${run.id}`} title=${`${run.name}, ${verdictText(run)}`}>
                seed ${run.seed}
              </a> `,
            )}
          </span>`
        }
      </li>`,
    )}
  </ul>`;
}
