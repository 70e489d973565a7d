/** The state of the service's own parts in words. Pure. */
import { plural } from '../text/format.js';

/** @typedef {Api.ServiceStatus} ServiceStatus */

/** @type {Record<string, string>} */
const WAITS = {
  database:
    'No data is lost: runs keep their finished steps and store them when the database is back. ' +
    'This page may be out of date.',
};

const PARTS = /** @type {const} */ (['database', 'broker', 'disk', 'history']);

/**
 * Returns the notices above a page during problems.
 * @param {ServiceStatus | null} status of `GET /status`
 * @returns {{part: string, text: string}[]}
 */
export function listTroubles(status) {
  if (!status) return [];
  return PARTS.filter((part) => status[part] && status[part].state !== 'ok').map((part) => ({
    part,
    text: [makeSentence(status[part]), WAITS[part], part === 'database' && describeUnwritten(status.waiting)]
      .filter(Boolean)
      .join(' '),
  }));
}

/**
 * Returns a text about data that a run could not store yet, or '' if nothing waits.
 * @param {ServiceStatus | null} status @param {string} run
 */
export function waitingText(status, run) {
  const note = status?.waiting.find((item) => item.run === run);
  if (!note) return '';
  const steps = note.steps ? `${plural(note.steps, 'step')} not yet stored` : 'no steps to store yet';
  const effect = note.is_held ? 'training is on hold' : 'training continues';
  return `waiting for the database since ${formatClock(note.since)}: ${steps}; ${effect}`;
}

function describeUnwritten(/** @type {Api.UnwrittenSteps[]} */ waitingSteps) {
  const steps = waitingSteps.reduce((sum, note) => sum + note.steps, 0);
  return steps ? `${plural(waitingSteps.length, 'run')} with ${plural(steps, 'step')} not yet stored.` : '';
}

const makeSentence = (/** @type {Api.ServicePart} */ { state, detail, since }) =>
  `${detail[0].toUpperCase()}${detail.slice(1)}${state === 'older' ? '' : `, since ${formatClock(since)}`}.`;

const formatClock = (/** @type {string} */ time) => new Date(time).toLocaleTimeString();
