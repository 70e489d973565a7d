/** Origins of runs: this service, or the log of another trainer. Pure. */

/** @type {Record<string, string>} */
const TITLES = { trl: 'TRL', verl: 'verl', tensorboard: 'TensorBoard', wandb: 'W&B', csv: 'CSV', jsonl: 'JSONL' };

/** Whether a run was read from a log: it has no checkpoints and never trains. @param {{origin?: string}} run */
export const isImported = ({ origin }) => Boolean(origin);

/** Name of the trainer or tool whose log it is. @param {string} origin */
export const originTitle = (origin) => TITLES[origin] ?? origin;
