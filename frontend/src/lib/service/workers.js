/** Worker slots in words. A slot is one device that trains one run at a time. */
import { plural } from '../text/format.js';

/** The service calls a slot lost that has given no sign of life lately. @param {{status?: string}} slot */
export const isAlive = (slot) => slot.status !== 'lost';

/** Id of the run on a slot. @param {{run?: string | null}} slot @returns {string | null} */
export const runOn = (slot) => slot.run ?? null;

const isGpu = (/** @type {{device?: string}} */ { device = '' }) => !/^cpu/i.test(device);

/** `2 GPUs`, `CPU`, `2 CPU slots`. @param {{device?: string}[]} slots */
export function deviceText(slots) {
  const gpus = slots.filter(isGpu).length;
  if (gpus) return plural(gpus, 'GPU');
  return slots.length === 1 ? 'CPU' : plural(slots.length, 'CPU slot');
}

const runsNoPrograms = (/** @type {Api.WorkerSlot} */ { stats }) => Boolean(stats?.sandbox?.runs_no_programs);

/**
 * What the processes that read completions lack on some worker, in a sentence; '' where every layer is there.
 * @param {Api.WorkerSlot[]} items
 */
export function sandboxGaps(items) {
  const gaps = new Map(items.filter(isAlive).map(({ host, stats }) => [host, stats?.sandbox?.missing ?? []]));
  const parts = [...gaps]
    .filter(([, missing]) => missing.length)
    .map(([host, missing]) => `${host} has no ${missing.join(', ')}`);
  if (!parts.length) return '';
  const refusing = new Set(items.filter(isAlive).flatMap((slot) => (runsNoPrograms(slot) ? [slot.host] : [])));
  const refused = refusing.size
    ? ` ${[...refusing].join(', ')} refuses the reward code, plugins and the tool python.`
    : '';
  return `The sandbox for model output is incomplete: ${parts.join('; ')}.${refused} Run grpolab doctor there to see how to fix it.`;
}

/**
 * @param {{items: Api.WorkerSlot[], error: Error | null, loaded: boolean}} state
 * @returns {{tone: 'busy'|'idle'|'none'|'unknown', text: string}}
 */
export function summary({ items, error, loaded }) {
  if (!loaded) return { tone: 'unknown', text: 'workers …' };
  if (error) return { tone: 'none', text: 'service unreachable' };
  const alive = items.filter(isAlive);
  if (!alive.length) return { tone: 'none', text: 'no worker' };
  const busy = alive.filter(runOn).length;
  return busy
    ? { tone: 'busy', text: `${plural(busy, 'run')} training · ${deviceText(alive)}` }
    : { tone: 'idle', text: `worker idle · ${deviceText(alive)}` };
}
