/** A link to completions that show a cause. */
import { html } from '../../dom.js';
import { lookup } from '../../lib/lookup.js';
import { plural } from '../../lib/text/format.js';
import { rolloutsAddress } from '../../lib/runs/addresses.js';

/** Words for marks whose names are not adjectives. @type {Record<string, string>} */
const MARK_WORDS = { same_reward: 'equally rewarded', language: 'mixed-script' };

/** @param {Pick<Api.EvidenceItem, 'marks'>} shown */
export const marksText = ({ marks }) => marks.map((mark) => lookup(MARK_WORDS, mark) ?? mark).join(' and ');

/**
 * A link to completions that show a cause, at the first stored step with such completions.
 * @param {{run: string, evidence: Api.EvidenceItem | undefined}} props
 */
export function CompletionsLink({ run, evidence }) {
  if (!evidence) return null;
  const { step, kind, marks, completions } = evidence;
  const href = rolloutsAddress(run, {
    step,
    kind,
    filter: marks.join() || undefined,
  });
  const noun = `${marksText(evidence)} completion`.trim();
  return html`<a href=${href}>${`${plural(completions, noun)} of step ${step}`}</a>`;
}
