/** Breakdown: the change of a metric between two windows of steps as a ranked sum with links to completions. */
import { html, useMemo } from '../../dom.js';
import { useQuery } from '../../app/router.js';
import { useGet } from '../../data/resource.js';
import { useSeries } from '../../data/series.js';
import { choice, text } from '../../lib/url.js';
import {
  isDecomposable,
  isExplainedByPrompts,
  readWindow,
  chooseUsualWindows,
  WAYS,
  writeWindow,
} from '../../lib/breakdown.js';
import { CommittedInput } from '../shared/committed_input.js';
import { Empty, Loaded, Skeleton } from '../shared/states.js';
import { Segments, Select } from '../shared/marks.js';
import { BreakdownTable } from './breakdown_table.js';
import { Windows } from './breakdown_windows.js';

const SPEC = {
  metric: text('reward/mean'),
  split: choice(['', ...WAYS.map(({ value }) => value)]),
  before: text(),
  after: text(),
};
/** @type {import('../../data/series.js').Shape} */
const SHAPE = { x: 'step', smoothing: 0, groupBy: '', band: '', zoom: null, points: 1000 };

/** @param {{run: Api.RunItem}} props */
export function Breakdown({ run }) {
  const [view, change] = useQuery(SPEC);
  const metrics = Object.keys(run.summary?.last ?? {})
    .filter(isDecomposable)
    .sort();
  const metric = metrics.includes(view.metric) ? view.metric : (metrics[0] ?? '');
  const splits = WAYS.filter(({ value }) => value !== 'term' || metric === 'reward/mean');
  const chosenSplit = splits.find(({ value }) => value === view.split)?.value;
  const curve = useSeries(metric, [run.id], SHAPE, Boolean(metric));
  const series = curve.series[0];
  const usual = useMemo(() => chooseUsualWindows(series?.steps ?? [], series?.values ?? []), [series]);
  const beforeWindow = readWindow(view.before) ?? usual?.before;
  const afterWindow = readWindow(view.after) ?? usual?.after;
  const isReady = Boolean(metric && beforeWindow && afterWindow);
  /** @type {string} */
  const path = `/runs/${encodeURIComponent(run.id)}/breakdown`;
  const windows =
    beforeWindow && afterWindow
      ? { metric, before: writeWindow(beforeWindow), after: writeWindow(afterWindow) }
      : undefined;
  const promptResource = useGet(isReady && !chosenSplit ? path : null, { ...windows, by: 'prompt' });
  const isSpread = !chosenSplit && promptResource.data !== undefined && !isExplainedByPrompts(promptResource.data);
  const splitBy = chosenSplit ?? (isSpread ? 'flag' : 'prompt');
  const splitResource = useGet(isReady && (chosenSplit || isSpread) ? path : null, { ...windows, by: splitBy });
  const resource = chosenSplit || isSpread ? splitResource : promptResource;
  if (!metric) return html`<${Empty} title="No metric of this run is a mean over completions" />`;
  const handleCommit = (/** @type {'before' | 'after'} */ name) => (/** @type {string} */ steps) => {
    if (readWindow(steps)) change({ [name]: steps });
  };
  const field = (
    /** @type {'before' | 'after'} */ name,
    /** @type {import('../../lib/breakdown.js').Window | undefined} */ stepWindow,
  ) =>
    html`<label class="select">
      ${name}: steps
      <${CommittedInput}
        class="field breakdown-steps"
        value=${stepWindow ? writeWindow(stepWindow) : ''}
        placeholder="10-20"
        onCommit=${handleCommit(name)}
      />
    </label>`;
  return html`<section class="breakdown" aria-label="Breakdown of a change">
    <div class="card run-part">
      <div class="toolbar">
        <${Select}
          label="change of"
          value=${metric}
          options=${metrics.map((value) => ({ value, label: value }))}
          onChange=${(/** @type {string} */ next) => change({ metric: next })}
        />
        ${field('before', beforeWindow)} ${field('after', afterWindow)}
        <span class="spacer"></span>
        <a class="quiet" href="/help/rollouts#breakdown">How it adds up</a>
      </div>
      ${
        beforeWindow &&
        afterWindow &&
        series &&
        html`<${Windows}
          series=${series}
          before=${beforeWindow}
          after=${afterWindow}
          onset=${run.onset}
          onChange=${(/** @type {{before: any, after: any}} */ next) =>
            change({ before: writeWindow(next.before), after: writeWindow(next.after) })}
        />`
      }
      <${Segments}
        label="Split by"
        value=${splitBy}
        options=${splits}
        onChange=${(/** @type {string} */ split) => change({ split })}
      />
      ${isSpread && html`<p class="quiet">No prompt explains much of it, so it is split by flags.</p>`}
    </div>
    ${
      isReady
        ? html`<${Loaded} resource=${resource} skeleton=${html`<${Skeleton} rows=${8} />`}>
          ${(/** @type {Api.BreakdownResponse} */ data) => html`<${BreakdownTable} answer=${data} />`}
        <//>`
        : html`<${Empty} title=${curve.loading ? 'Loading' : `${metric} was logged at fewer than two steps`} />`
    }
  </section>`;
}
