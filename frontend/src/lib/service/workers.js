/** Worker slots in words. A slot is a device that trains one run at a time. */
import { plural } from '../text/format.js';

/**
 * Returns whether a slot is alive. The service marks a slot as lost if its heartbeat is old.
 * @param {{status?: string}} slot
 */
export const isAlive = (slot) => slot.status !== 'lost';

/** Returns the id of the run on a slot. @param {{run?: string | null}} slot @returns {string | null} */
export const runOn = (slot) => slot.run ?? null;

const isGpu = (/** @type {{device?: string}} */ { device = '' }) => !/^cpu/i.test(device);

/** Returns the devices of slots in words: `2 GPUs`, `CPU` or `2 CPU slots`. @param {{device?: string}[]} slots */
export function deviceText(slots) {
  const gpus = slots.filter(isGpu).length;
  if (gpus) return plural(gpus, 'GPU');
  return slots.length === 1 ? 'CPU' : plural(slots.length, 'CPU slot');
}

const runsNoPrograms = (/** @type {Api.WorkerSlot} */ { stats }) => Boolean(stats?.sandbox?.runs_no_programs);

/**
 * Returns a sentence about missing sandbox layers on some worker, or '' if every layer is active.
 * @param {Api.WorkerSlot[]} items
 */
export function describeSandboxGaps(items) {
  const gaps = new Map(items.filter(isAlive).map(({ host, stats }) => [host, stats?.sandbox?.missing ?? []]));
  const gapTexts = [...gaps]
    .filter(([, missingLayers]) => missingLayers.length)
    .map(([host, missingLayers]) => `${host} has no ${missingLayers.join(', ')}`);
  if (!gapTexts.length) return '';
  const refusingHosts = new Set(items.filter(isAlive).flatMap((slot) => (runsNoPrograms(slot) ? [slot.host] : [])));
  const refusedText = refusingHosts.size
    ? ` ${[...refusingHosts].join(', ')} refuses the reward code, plugins and the tool python.`
    : '';
  return `The sandbox for model output is incomplete: ${gapTexts.join('; ')}.${refusedText} Run grpolab doctor there to see how to fix it.`;
}

/**
 * @param {{items: Api.WorkerSlot[], error: Error | null, loaded: boolean}} state
 * @returns {{tone: 'busy'|'idle'|'none'|'unknown', text: string}}
 */
export function summarise({ items, error, loaded }) {
  if (!loaded) return { tone: 'unknown', text: 'workers …' };
  if (error) return { tone: 'none', text: 'service unreachable' };
  const alive = items.filter(isAlive);
  if (!alive.length) return { tone: 'none', text: 'no worker' };
  const busy = alive.filter(runOn).length;
  return busy
    ? { tone: 'busy', text: `${plural(busy, 'run')} training · ${deviceText(alive)}` }
    : { tone: 'idle', text: `worker idle · ${deviceText(alive)}` };
}
