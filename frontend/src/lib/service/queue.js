/** What waits, what runs and for how long still. Pure. */
import { formatDuration } from '../text/format.js';

/** Seconds until a run is done, from its last step's time; null while unknown. @param {any} run */
export function secondsLeft(run) {
  const perStep = run.summary?.last?.['time/step_seconds'];
  const left = run.steps - (run.last_step ?? 0);
  return typeof perStep === 'number' && run.last_step > 0 && left >= 0 ? perStep * left : null;
}

/** @param {any} run */
export const etaText = (run) => {
  const seconds = secondsLeft(run);
  return seconds === null ? '–' : `≈ ${formatDuration(seconds)}`;
};

/** How busy a worker's machine is, 0-1, where it tells. @param {{cpu_percent?: number}} stats */
export const processorShare = (stats) => (typeof stats?.cpu_percent === 'number' ? stats.cpu_percent / 100 : null);

/** Share of a worker's memory in use, where it tells. @param {{memory_used?: number, memory_total?: number}} stats */
export const memoryShare = (stats) => (stats?.memory_total ? stats.memory_used / stats.memory_total : null);
