/** The settings of a search: its objective, its pruning, and its end. */
import { html } from '../../dom.js';
import { SEARCH } from '../../lib/launch/sweep.js';
import { plural } from '../../lib/text/format.js';
import { Segments, Select } from '../shared/marks.js';
import { FieldNumber, WholeNumber } from './number.js';

/** @typedef {import('../../lib/launch/sweep.js').Sweep} Sweep */
/** @typedef {import('../../lib/launch/sweep.js').Search} Search */

const SAMPLERS = [
  { value: 'tpe', label: 'TPE', title: 'Follows the results: Optuna’s tree-structured Parzen estimator' },
  { value: 'random', label: 'Random', title: 'Ignores the results' },
];
const PRUNERS = [
  { value: 'none', label: 'None', title: 'Every run trains to its end' },
  { value: 'median', label: 'Median', title: 'Stops runs that are worse than the median of the finished ones' },
  { value: 'halving', label: 'Halving', title: 'Lets the best third of the runs go on at each rung' },
];
const READINGS = [
  { value: 'final', label: 'last evaluation' },
  { value: 'best', label: 'best evaluation' },
  { value: 'mean_of_3', label: 'mean of the last 3' },
];
const DIRECTIONS = [
  { value: 'catalog', label: 'as in the catalog' },
  { value: 'maximize', label: 'higher is better' },
  { value: 'minimize', label: 'lower is better' },
];

/**
 * @param {{sweep: Sweep, metrics: string[], onChange: (sweep: Sweep) => void}} props
 *   `metrics`: those of the catalog that are better in one direction
 */
export function SearchSettings({ sweep, metrics, onChange }) {
  const search = { ...SEARCH, ...sweep.search };
  const setSearch = (/** @type {Partial<Search>} */ changes) =>
    onChange({ ...sweep, search: { ...search, ...changes } });
  const number = (/** @type {'max_active_runs' | 'top'} */ key, /** @type {string} */ label) =>
    html`<${WholeNumber}
      label=${label}
      value=${search[key]}
      onChange=${(/** @type {number} */ value) => setSearch({ [key]: value })}
    />`;
  const budget = (/** @type {'hours' | 'money'} */ key, /** @type {string} */ label) =>
    html`<${FieldNumber}
      label=${label}
      value=${search[key]}
      placeholder="no limit"
      onChange=${(/** @type {number | null} */ value) => setSearch({ [key]: value })}
    />`;
  return html`<fieldset class="search-settings">
    <legend class="visually-hidden">Search</legend>
    <div class="toolbar">
      <${Select}
        label="objective"
        value=${search.metric}
        options=${metrics.includes(search.metric) ? metrics : [search.metric, ...metrics]}
        onChange=${(/** @type {string} */ metric) => setSearch({ metric })}
      />
      <${Select}
        label="value of a run"
        value=${search.reading}
        options=${READINGS}
        onChange=${(/** @type {Search['reading']} */ reading) => setSearch({ reading })}
      />
      <${Select}
        label="direction"
        value=${search.direction}
        options=${DIRECTIONS}
        onChange=${(/** @type {Search['direction']} */ direction) => setSearch({ direction })}
      />
    </div>
    <div class="toolbar">
      <span class="search-choice">
        sampler
        <${Segments}
          label="Sampler"
          value=${search.sampler}
          options=${SAMPLERS}
          onChange=${(/** @type {Search['sampler']} */ sampler) => setSearch({ sampler })}
        />
      </span>
      <span class="search-choice">
        prune by
        <${Segments}
          label="Pruner"
          value=${search.pruner}
          options=${PRUNERS}
          onChange=${(/** @type {Search['pruner']} */ pruner) => setSearch({ pruner })}
        />
      </span>
      <${FieldNumber}
        label="after this share of the steps"
        value=${search.first_rung}
        onChange=${(/** @type {number | null} */ value) => value && setSearch({ first_rung: value })}
      />
      <label class="check">
        <input
          type="checkbox"
          checked=${search.prune_sick}
          onChange=${(event) => setSearch({ prune_sick: event.target.checked })}
        />
        stop runs that collapse, decline or never learn
      </label>
    </div>
    <div class="toolbar">
      ${number('max_active_runs', 'runs at once')} ${number('top', 'best to run again')}
      ${budget('hours', 'budget in slot hours')} ${budget('money', 'budget in money')}
    </div>
    <p class="form-help">
      Each configuration runs with the first seed. The best ${plural(search.top, 'configuration')} then run with the
      remaining seeds, and only those decide the winner.
    </p>
  </fieldset>`;
}
