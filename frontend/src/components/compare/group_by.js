/** The menu that chooses which runs share a mean, by one or several fields. */
import { html, useMemo } from '../../dom.js';
import { findDifferingFields, parseGrouping } from '../../lib/runs/grouping.js';
import { Menu } from '../shared/overlay.js';
import { Segments } from '../shared/marks.js';
import { FieldChooser } from './chooser.js';
import { lookup } from '../../lib/lookup.js';

/** @type {Record<string, string>} */
const TITLES = {
  variant: 'variant',
  experiment: 'experiment',
  tag: 'tags',
  verdict: 'verdict',
  config: 'config, all but the seed',
};
const formatKeyTitle = (/** @type {string} */ key) => lookup(TITLES, key) ?? key.replace(/^config\./, '');

/**
 * The choice of lines: the mean of runs with equal values in some fields, or single runs.
 * @param {{grouping: string, runs: Api.RunItem[], onChange: (by: string) => void}} props
 */
export function GroupBy({ grouping, runs, onChange }) {
  const isGrouped = grouping !== 'run';
  const keys = parseGrouping(grouping);
  const label = isGrouped
    ? html`<span>mean by <b>${keys.map(formatKeyTitle).join(', ')}</b></span>`
    : html`<b>single runs</b>`;
  return html`<${Menu} label=${label} title="Group runs by">
    <${Segments}
      label="Lines"
      value=${isGrouped ? 'variant' : 'run'}
      options=${[{ value: 'variant', label: 'means' }, { value: 'run', label: 'single runs' }]}
      onChange=${onChange}
    />
    ${isGrouped && html`<${Choice} keys=${keys} runs=${runs} onChange=${onChange} />`}
  <//>`;
}

/** @param {{keys: string[], runs: Api.RunItem[], onChange: (by: string) => void}} props */
function Choice({ keys, runs, onChange }) {
  const fields = useMemo(() => findDifferingFields(runs).map((path) => `config.${path}`), [runs]);
  const options = [...new Set([...Object.keys(TITLES), ...keys, ...fields])];
  return html`<${FieldChooser}
    options=${options}
    chosenKeys=${keys}
    onChange=${(/** @type {string[]} */ next) => onChange(next.join() || 'variant')}
    formatTitle=${formatKeyTitle}
    label="Find a field to group by"
    placeholder="Find a field"
    empty="No matching field."
  >
    <p class="menu-title">Config fields that differ among these runs. Several make a group of each combination.</p>
  <//>`;
}
