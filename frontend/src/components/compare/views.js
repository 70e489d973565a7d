/** Saved views of comparisons, which store the complete address under a name, with fixed runs or a query for runs. */
import { html, useState } from '../../dom.js';
import { currentAddress } from '../../app/router.js';
import { makeComparisonView } from '../../lib/runs/views.js';
import { plural } from '../../lib/text/format.js';
import { ViewsMenu } from '../shared/views.js';

/**
 * @param {{view: import('../../views/compare.js').CompareView, experiment: string, runs: string[], names: string[]}} props
 *   `runs` that are compared; `names` of the page's parameters
 */
export function ComparisonViews({ view, experiment, runs, names }) {
  const [typedQuery, setTypedQuery] = useState(/** @type {string | null} */ (null));
  const query = (typedQuery ?? (experiment || view.runs?.length ? '' : view.query)).trim();
  const fixedRunsText = experiment ? 'all runs of this experiment' : `these ${plural(runs.length, 'run')}`;
  return html`<${ViewsMenu} view=${makeComparisonView(currentAddress.value.search, names, { query, experiment, runs })}>
    <label class="view-query">
      Runs that match a query when the view is opened; empty: ${fixedRunsText}
      <input
        class="field wide"
        placeholder="e.g. preset = dapo and created > -7d"
        maxlength="2000"
        value=${typedQuery ?? query}
        onInput=${(event) => setTypedQuery(event.target.value)}
      />
    </label>
  <//>`;
}
