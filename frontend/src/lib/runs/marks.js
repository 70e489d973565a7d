/** What of a run's history is drawn into its charts: where the meaning of a curve changes. Pure. */

/**
 * Kinds of events that are drawn whatever their level; an error is drawn whatever its kind, but for a diagnosis: its
 * onset is drawn, and not the step at which it was told.
 */
const TURNS = ['reference', 'checkpoint'];

/**
 * One mark for each step at which something happened.
 * @param {{kind: string, level: string, step: number|null, message: string}[]} events
 * @returns {{step: number, text: string}[]} in the order of steps
 */
export function marksOf(events) {
  /** @type {Map<number, Set<string>>} */
  const messagesByStep = new Map();
  for (const { kind, level, step, message } of events) {
    if (typeof step !== 'number' || !(TURNS.includes(kind) || (level === 'error' && kind !== 'diagnosis'))) continue;
    messagesByStep.set(step, (messagesByStep.get(step) ?? new Set()).add(message));
  }
  return [...messagesByStep]
    .map(([step, messages]) => ({ step, text: [...messages].join('; ') }))
    .sort((a, b) => a.step - b.step);
}
