/** Origins of runs: this service, or another trainer, whose log was imported or which pushes the run. Pure. */
import { lookup } from '../lookup.js';

/** @type {Record<string, string>} */
const TITLES = {
  trl: 'TRL',
  verl: 'verl',
  slime: 'slime',
  tensorboard: 'TensorBoard',
  wandb: 'W&B',
  trackio: 'Trackio',
  csv: 'CSV',
  parquet: 'Parquet',
  jsonl: 'JSONL',
  text: 'text',
  script: 'a script',
  grpolab: 'an archive of GRPO Lab',
};

const ARCHIVED = 'grpolab';

const SILENT_MS = 120_000;

/**
 * Whether another trainer makes the run: it has no checkpoints and never trains here.
 * @param {{origin?: string}} run
 */
export const isForeign = ({ origin }) => Boolean(origin) && origin !== ARCHIVED;

/**
 * Whether a run comes from an archive: its config is complete, and it never trains here.
 * @param {{origin?: string}} run
 */
export const isArchived = ({ origin }) => origin === ARCHIVED;

/** Whether the run's trainer pushes it while it trains. @param {{writer?: string | null}} run */
export const isPushed = ({ writer }) => typeof writer === 'string';

/**
 * Whether a run that should be live has given no sign for long: its trainer may be dead or without a network.
 * @param {{status: string, seen_at?: string | null}} run @param {number} [now] in milliseconds
 */
export const isSilent = ({ status, seen_at: seen }, now = Date.now()) =>
  status === 'running' && Boolean(seen) && now - new Date(seen ?? '').getTime() > SILENT_MS;

/** Name of the trainer or tool that it comes from. @param {string} origin */
export const originTitle = (origin) => lookup(TITLES, origin) ?? origin;
