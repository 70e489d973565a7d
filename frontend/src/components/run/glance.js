/** Curves at a glance: a sparkline of a metric with few points, and the change since its first value. */
import { html } from '../../dom.js';
import { useSeries } from '../../data/series.js';
import { Sparkline } from '../shared/sparkline.js';

const SHAPE = { x: 'step', smoothing: 0, groupBy: '', band: '', zoom: null, points: 160 };

/** @param {string} run @param {string} metric empty: none */
export const useGlance = (run, metric) => useSeries(metric, [run], SHAPE, metric !== '').series.at(0);

/**
 * Two lines of a fixed height, which are empty until the curve is loaded.
 * @param {{run: string, metric: string, format: (value: number) => string}} props
 */
export function Trend({ run, metric, format }) {
  const series = useGlance(run, metric);
  const values = series?.values ?? [];
  const change = values[values.length - 1] - values[0];
  return html`
    <${Sparkline} series=${series} />
    <span class="faint">
      ${
        series && values.length > 1
          ? `${change < 0 ? '−' : '+'}${format(Math.abs(change))} since step ${series.steps[0]}`
          : '\u00a0'
      }
    </span>
  `;
}
