/** What waits, what runs and for how long still. Pure. */
import { formatDuration } from '../text/format.js';

/** Seconds until a run is done, from its last step's time; null while unknown. @param {Api.RunItem} run */
export function secondsLeft(run) {
  const perStep = run.summary?.last?.['time/step_seconds'];
  const left = run.steps - (run.last_step ?? 0);
  return typeof perStep === 'number' && run.last_step > 0 && left >= 0 ? perStep * left : null;
}

/** @param {Api.RunItem} run */
export const etaText = (run) => {
  const seconds = secondsLeft(run);
  return seconds === null ? '–' : `≈ ${formatDuration(seconds)}`;
};

/** How busy a worker's machine is, 0-1, where it tells. @param {Api.WorkerSlot['stats']} stats */
export const processorShare = (stats) => (typeof stats?.cpu_percent === 'number' ? stats.cpu_percent / 100 : null);

/** Share of a worker's memory in use, where it tells. @param {Api.WorkerSlot['stats']} stats */
export const memoryShare = (stats) => (stats?.memory_total ? (stats.memory_used ?? 0) / stats.memory_total : null);
