/** The events of a run in its charts, which mark changes in the meaning of a curve. Pure. */

/**
 * Kinds of events that are shown at any level. Errors of any kind are shown, except a diagnosis: its onset is shown
 * instead of the step at which it was reported.
 */
const MARKED_KINDS = ['reference', 'checkpoint'];

/**
 * Returns a mark for each step with events.
 * @param {{kind: string, level: string, step: number|null, message: string}[]} events
 * @returns {{step: number, text: string}[]} in the order of steps
 */
export function makeMarks(events) {
  /** @type {Map<number, Set<string>>} */
  const messagesByStep = new Map();
  for (const { kind, level, step, message } of events) {
    if (typeof step !== 'number' || !(MARKED_KINDS.includes(kind) || (level === 'error' && kind !== 'diagnosis')))
      continue;
    messagesByStep.set(step, (messagesByStep.get(step) ?? new Set()).add(message));
  }
  return [...messagesByStep]
    .map(([step, messages]) => ({ step, text: [...messages].join('; ') }))
    .sort((a, b) => a.step - b.step);
}
