/** Workers in one line. */
import { plural } from './format.js';

const devices = (items) => {
  const names = items.flatMap((worker) => worker.devices ?? []).map((device) => device.kind ?? device.name ?? device);
  const gpus = names.filter((name) => /cuda|gpu/i.test(String(name))).length;
  return gpus ? plural(gpus, 'GPU') : 'CPU';
};

/** Ids of the runs on a worker. */
export const runsOn = (worker) => worker.runs ?? [];

/**
 * @param {{items: any[], error: Error | null, loaded: boolean}} state
 * @returns {{tone: 'busy'|'idle'|'none'|'unknown', text: string}}
 */
export function summary({ items, error, loaded }) {
  if (!loaded) return { tone: 'unknown', text: 'workers …' };
  if (error) return { tone: 'none', text: 'service unreachable' };
  const alive = items.filter((worker) => worker.alive !== false);
  if (!alive.length) return { tone: 'none', text: 'no worker' };
  const busy = alive.reduce((count, worker) => count + runsOn(worker).length, 0);
  const what = alive.length === 1 ? 'worker' : plural(alive.length, 'worker');
  return busy
    ? { tone: 'busy', text: `${what} · ${plural(busy, 'run')} · ${devices(alive)}` }
    : { tone: 'idle', text: `${what} idle · ${devices(alive)}` };
}
