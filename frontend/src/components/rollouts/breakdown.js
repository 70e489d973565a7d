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
  usualWindows,
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
  const chosen = splits.find(({ value }) => value === view.split)?.value;
  const curve = useSeries(metric, [run.id], SHAPE, Boolean(metric));
  const series = curve.series[0];
  const usual = useMemo(() => usualWindows(series?.steps ?? [], series?.values ?? []), [series]);
  const before = readWindow(view.before) ?? usual?.before;
  const after = readWindow(view.after) ?? usual?.after;
  const isReady = Boolean(metric && before && after);
  /** @type {string} */
  const path = `/runs/${encodeURIComponent(run.id)}/breakdown`;
  const windows = before && after ? { metric, before: writeWindow(before), after: writeWindow(after) } : undefined;
  const byPrompt = useGet(isReady && !chosen ? path : null, { ...windows, by: 'prompt' });
  const isSpread = !chosen && byPrompt.data !== undefined && !isExplainedByPrompts(byPrompt.data);
  const by = chosen ?? (isSpread ? 'flag' : 'prompt');
  const bySplit = useGet(isReady && (chosen || isSpread) ? path : null, { ...windows, by });
  const answer = chosen || isSpread ? bySplit : byPrompt;
  if (!metric) return html`<${Empty} title="No metric of this run is a mean over completions" />`;
  const typed = (/** @type {'before' | 'after'} */ name) => (/** @type {string} */ steps) => {
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
        onCommit=${typed(name)}
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
        ${field('before', before)} ${field('after', after)}
        <span class="spacer"></span>
        <a class="quiet" href="/help/rollouts#breakdown">How it adds up</a>
      </div>
      ${
        before &&
        after &&
        series &&
        html`<${Windows}
          series=${series}
          before=${before}
          after=${after}
          onset=${run.onset}
          onChange=${(/** @type {{before: any, after: any}} */ next) =>
            change({ before: writeWindow(next.before), after: writeWindow(next.after) })}
        />`
      }
      <${Segments}
        label="Split by"
        value=${by}
        options=${splits}
        onChange=${(/** @type {string} */ split) => change({ split })}
      />
      ${isSpread && html`<p class="quiet">No prompt explains much of it, so it is split by flags.</p>`}
    </div>
    ${
      isReady
        ? html`<${Loaded} resource=${answer} skeleton=${html`<${Skeleton} rows=${8} />`}>
          ${(/** @type {Api.BreakdownAnswer} */ data) => html`<${BreakdownTable} answer=${data} />`}
        <//>`
        : html`<${Empty} title=${curve.loading ? 'Loading' : `${metric} was logged at fewer than two steps`} />`
    }
  </section>`;
}
