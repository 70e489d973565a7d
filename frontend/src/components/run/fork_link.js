/** A link to the launch form with a run's config, to continue from one of its checkpoints. */
import { html } from '../../dom.js';
import { address } from '../../lib/url.js';
import { Icon } from '../shared/icons.js';
import { ForOperator } from '../shared/role.js';

/** @param {{run: {id: string}, step?: number, look?: string}} props without a step, the newest checkpoint is used */
export function ForkLink({ run, step, look = 'button' }) {
  return html`<${ForOperator}>
    <a
      class=${look}
      href=${address('/launch', { from: run.id, fork: run.id, step })}
      title="Start a new run from a checkpoint, with changes"
    >
      <${Icon} name="fork" size=${12} /> Fork
    </a>
  <//>`;
}
