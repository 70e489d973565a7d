/** The actions allowed in each state of a run, and the states in words. */

import { isArchived, isForeign, isPushed, isSilent } from './origin.js';
import { lookup } from '../lookup.js';

/** @typedef {'stop'|'pause'|'resume'|'retry'} Move */

/** @type {Record<Move, string>} */
const LABELS = { stop: 'Stop', pause: 'Pause', resume: 'Resume', retry: 'Retry' };

/** Actions allowed in each status. @type {Record<string, Move[]>} */
const MOVES = {
  queued: ['pause', 'stop'],
  running: ['pause', 'stop'],
  paused: ['resume', 'stop'],
  stopped: ['resume'],
  failed: ['retry'],
};

/**
 * Returns the allowed actions. A run from an archive never trains here, and a run of another trainer can only be
 * stopped, while it is pushed.
 * @param {{status: string, requested_action?: string, origin?: string, writer?: string | null, seen_at?: string | null}} run
 * @returns {{move: Move, label: string}[]}
 */
export function listMoves(run) {
  const { status } = run;
  if (isArchived(run)) return [];
  if (isForeign(run) && !(isPushed(run) && status === 'running')) return [];
  if (status === 'running' && run.requested_action && !isSilent(run)) {
    const keep = { move: /** @type {Move} */ ('resume'), label: 'Keep running' };
    return isPushed(run) ? [keep, { move: 'stop', label: 'Stop now' }] : [keep];
  }
  /** @type {Move[]} */
  const moves = isPushed(run) ? ['stop'] : (lookup(MOVES, status) ?? []);
  return moves.map((move) => ({ move, label: LABELS[move] }));
}

/** Returns the remaining seconds at the current pace, or null if they are unknown. @param {Api.RunItem} run */
export function countSecondsLeft(run) {
  const pace = run.summary?.last?.['time/step_seconds'];
  if (run.status !== 'running' || run.requested_action || typeof pace !== 'number' || !run.steps) return null;
  return Math.max(0, run.steps - run.last_step) * pace;
}

/** Readable texts of reason codes. @type {Record<string, string>} */
const REASONS = {
  no_signal: 'None of the last 20 steps had a group to train on: all were filtered out, or had no score.',
};

/** @param {string} reason */
export const reasonText = (reason) => lookup(REASONS, reason) ?? reason;
