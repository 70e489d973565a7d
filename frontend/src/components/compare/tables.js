/** The runs of a variant in a table, by their seeds and verdicts. */
import { html } from '../../dom.js';
import { VERDICTS, verdictText, verdictTitle } from '../../lib/runs/verdicts.js';
import { plural } from '../../lib/text/format.js';
import { Icon } from '../shared/icons.js';
import { Status } from '../shared/marks.js';

const MAX_LINKS = 12;

/**
 * Links to the runs of a variant, named by their seeds, with status and verdict.
 * @param {{runs: Api.RunItem[]}} props
 */
export const SeedLinks = ({ runs }) => html`<span class="cell-runs">
  ${runs.slice(0, MAX_LINKS).map((run) => html`<${SeedLink} key=${run.id} run=${run} />`)}
  ${runs.length > MAX_LINKS && html`<span class="faint">and ${plural(runs.length - MAX_LINKS, 'more run')}</span>`}
</span>`;

/** A link to a run, named by its seed, with the icon of its verdict or, before it has one, of its status. */
function SeedLink(/** @type {{run: Api.RunItem}} */ { run }) {
  const verdict = run.verdict ? verdictText(run) : '';
  const { icon, tone } = VERDICTS[run.verdict ?? 'inconclusive'];
  const name = [run.name, `seed ${run.seed}`, run.status, verdict].filter(Boolean).join(', ');
  return html`<a href=${`/run/${run.id}`} title=${name}>
    ${
      run.verdict && run.status === 'finished'
        ? html`<span class=${`verdict-${tone}`}><${Icon} name=${icon} size=${12} label=${verdict} /></span>`
        : html`<${Status} run=${run} bare />`
    }
    ${run.seed}
  </a>`;
}

/**
 * The number of runs of a variant with each verdict.
 * @param {{counts: ReturnType<typeof import('../../lib/runs/summary.js').countVerdicts>}} props
 */
export function Verdicts({ counts }) {
  if (!counts.length) return html`<span class="faint">–</span>`;
  return html`<ul class="verdicts">
    ${counts.map(
      ({ verdict, runs }) => html`<li key=${verdict} class=${`verdict-${VERDICTS[verdict].tone}`}>
        ${runs.length} ${verdictTitle(verdict)}
      </li>`,
    )}
  </ul>`;
}
