/** Texts of the queue: remaining time, GPU and cost of a run. Pure. */
import { formatDuration, formatMoney, formatPercent, formatValue } from '../text/format.js';

/**
 * Returns the seconds until a run is done, from its last step's time, or null while unknown.
 * @param {Api.RunItem} run
 */
export function estimateSecondsLeft(run) {
  const perStep = run.summary?.last?.['time/step_seconds'];
  const stepsLeft = run.steps - (run.last_step ?? 0);
  return typeof perStep === 'number' && run.last_step > 0 && stepsLeft >= 0 ? perStep * stepsLeft : null;
}

/** @param {Api.RunItem} run */
export const etaText = (run) => {
  const seconds = estimateSecondsLeft(run);
  return seconds === null ? '–' : `≈ ${formatDuration(seconds)}`;
};

/**
 * Returns the GPU of a slot in words, e.g. "92 % · 61 °C · 412 W", or "" without a GPU.
 * @param {Api.WorkerStats | null} stats
 */
export const gpuText = (stats) =>
  [
    stats?.gpu_frac === undefined ? '' : formatPercent(stats.gpu_frac),
    stats?.gpu_celsius === undefined ? '' : `${Math.round(stats.gpu_celsius)} °C`,
    stats?.gpu_watts === undefined ? '' : `${Math.round(stats.gpu_watts)} W`,
  ]
    .filter(Boolean)
    .join(' · ');

/**
 * Returns the cost of a run, e.g. "0.42 GPU-hours · 1.05 USD · judges 0.20 USD of it", or "" for CPUs without a price.
 * @param {Api.Cost | null | undefined} cost
 */
export function costText(cost) {
  if (!cost) return '';
  const money = Object.entries(cost.money).map(([currency, amount]) => `${formatMoney(amount)} ${currency}`);
  const gpu = cost.gpu_hours ? [`${formatValue(cost.gpu_hours)} GPU-hours`] : [];
  const judges = Object.entries(cost.judges)
    .filter(([, amount]) => amount > 0)
    .map(([currency, amount]) => `judges ${formatMoney(amount)} ${currency} of it`);
  return [...gpu, ...money, ...judges].join(' · ');
}
