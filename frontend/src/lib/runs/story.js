/** The history of a run's goal in sentences with recorded values. Pure. */
import { formatValue } from '../text/format.js';
import { lookup } from '../lookup.js';
import { stepsText } from './verdicts.js';

/**
 * @param {Api.DiagnosisItem} diagnosis
 * @param {Pick<Api.RunItem, 'status' | 'summary'>} run
 * @returns {string[]}
 */
export function tellStory(diagnosis, { status, summary }) {
  const { verdict, goal, note, onset, fall, first_signals: signals } = diagnosis;
  if (verdict === 'inconclusive') return [`Too little to judge: ${note}.`];
  const end = `${status === 'running' ? 'is now at' : 'ended at'} ${formatValue(lookup(summary?.last ?? {}, goal) ?? diagnosis.end)}`;
  const goalText =
    verdict === 'never_learned'
      ? `${goal} never rose above its noise and ${end}.`
      : `${goal} was best at ${describeBest(diagnosis, summary)} and ${end}.`;
  return [
    ...(goal ? [goalText] : []),
    ...(fall ? fallText(fall) : []),
    ...(signals.length ? [`First signal: ${signals.join(', ')}, ${stepsText(onset)}.`] : []),
    ...(note ? [`Note: ${note}.`] : []),
  ];
}

/**
 * Returns the best recorded value, or the best smoothed value if the record is later than the fall.
 * @param {Api.DiagnosisItem} diagnosis @param {Api.RunItem['summary']} summary
 */
function describeBest({ goal, best, best_step: step, fall }, summary) {
  const recordedBest = lookup(summary?.best ?? {}, goal);
  return recordedBest && recordedBest.step <= (fall?.sick ?? Infinity)
    ? `step ${recordedBest.step}, with ${formatValue(recordedBest.value)},`
    : `about step ${step}, with ${formatValue(best)} on average,`;
}

/** @param {Api.Steps} fall */
const fallText = ({ healthy, sick }) =>
  healthy === sick
    ? [`The fall began at step ${sick}.`]
    : [`The fall began after step ${healthy}.`, `By step ${sick} it was certain.`];

/**
 * Returns the independent causes, their consequences, and the remedies that a trial can test.
 * @param {Api.CauseItem[]} causes
 */
export function arrangeCauses(causes) {
  const rootCauses = causes.filter((cause) => !cause.explained_by);
  const isKnob = (/** @type {Api.CauseItem} */ { remedy }) => Object.keys(remedy.changes).length > 0;
  return {
    rootCauses,
    consequences: causes.filter((cause) => cause.explained_by),
    remedied: [...rootCauses.filter(isKnob), ...rootCauses.filter((cause) => !isKnob(cause))],
    knobs: rootCauses.filter(isKnob).length,
  };
}
