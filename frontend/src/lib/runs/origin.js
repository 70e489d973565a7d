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
  mlflow: 'MLflow',
  swanlab: 'SwanLab',
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
 * Returns whether the run belongs to another trainer: it has no checkpoints and never trains here.
 * @param {{origin?: string}} run
 */
export const isForeign = ({ origin }) => Boolean(origin) && origin !== ARCHIVED;

/**
 * Returns whether a run comes from an archive: its config is complete, and it never trains here.
 * @param {{origin?: string}} run
 */
export const isArchived = ({ origin }) => origin === ARCHIVED;

/** Returns whether the run's trainer pushes it during training. @param {{writer?: string | null}} run */
export const isPushed = ({ writer }) => typeof writer === 'string';

/**
 * Returns whether a live run has sent nothing for long. Its trainer may be dead or without a network.
 * @param {{status: string, seen_at?: string | null}} run @param {number} [now] in milliseconds
 */
export const isSilent = ({ status, seen_at: seenAt }, now = Date.now()) =>
  status === 'running' && Boolean(seenAt) && now - new Date(seenAt ?? '').getTime() > SILENT_MS;

/** Returns the name of the trainer or tool of an origin. @param {string} origin */
export const originTitle = (origin) => lookup(TITLES, origin) ?? origin;
