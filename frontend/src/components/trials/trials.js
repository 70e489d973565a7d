/** Trials with their current verdicts, for the diagnosis of a run and above the curves of an experiment. */
import { html } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { describeChangedFields } from '../../lib/trials.js';
import { experimentAddress } from '../../lib/runs/addresses.js';
import { formatValue } from '../../lib/text/format.js';
import { Ago } from '../shared/states.js';
import { DataTable, makeNumberHeads } from '../shared/data_table.js';

/** @param {{run?: string, experiment?: string}} `run` or `experiment`: the one with the trials */
export const useTrials = ({ run, experiment }) =>
  useGet(
    '/trials',
    { run, experiment },
    {
      live: ['run'],
      concerns: (data) => data.id === run || data.tags?.includes('trial'),
      every: 3000,
    },
  );

/**
 * @param {{trials: ReturnType<typeof useTrials>, isAlone?: boolean, config?: Record<string, any> | null}} props
 *   `isAlone`: on the page of an experiment; `config`: that of the run, if it is known, so that changes are shown with
 *   the replaced values
 */
export function Trials({ trials, isAlone = false, config }) {
  if (trials.error && !trials.data)
    return html`<p class="quiet" role="alert">Trials unavailable: ${trials.error.message}</p>`;
  return (trials.data?.items ?? []).map(
    (trial) => html`<${Trial} key=${trial.id} trial=${trial} config=${config} isAlone=${isAlone} />`,
  );
}

/** @param {{experiment: string}} props */
export const TrialsOfExperiment = ({ experiment }) => html`<${Trials} trials=${useTrials({ experiment })} isAlone />`;

/**
 * @param {{trial: Api.TrialItem, isAlone: boolean, config?: Record<string, any> | null}} props
 *   `isAlone`: on the page of its experiment
 */
function Trial({ trial, isAlone, config }) {
  const { verdict, experiment } = trial;
  const [summary, ...sentences] = verdict.sentences;
  const title = trial.title || 'cause unknown';
  const goalHead = `${verdict.goal || 'goal'} at the end`;
  const Heading = isAlone ? 'h2' : 'h3';
  return html`<article class=${isAlone ? 'trial card' : 'trial'} aria-label=${`Trial: ${title}`}>
    <${Heading}>
      Trial
      ${isAlone && html` of <a href=${`/run/${trial.run}`}>${trial.run_name}</a>`}: ${title}${' '}
      <span class="faint">
        ${verdict.complete ? 'ended' : html`<span class="status-running">in progress</span>`}, started${' '}
        <${Ago} time=${trial.created_at} />
      </span>
    <//>
    <p><b>${summary}</b></p>
    ${sentences.map((words) => html`<p key=${words}>${words}</p>`)}
    <${DataTable}
      name="Arms of the trial"
      heads=${['arm', 'changes', ...makeNumberHeads('ended', 'fell', 'healthy', 'not counted', goalHead, 'p')]}
    >
      <tbody>
        ${verdict.arms.map((arm) => html`<${Arm} key=${arm.name} arm=${arm} config=${config} />`)}
      </tbody>
    <//>
    <p class="quiet">
      ${trial.fork.words} Every run ends at step ${trial.steps}.
      ${
        !isAlone &&
        (experiment
          ? html`${' '}<a href=${experimentAddress(experiment, { baseline: 'no change' })}>Compare the curves</a>`
          : ' Its runs have been deleted.')
      }
    </p>
  </article>`;
}

/** @param {{arm: Api.ArmResult, config?: Record<string, any> | null}} props */
function Arm({ arm, config }) {
  const changes = describeChangedFields(config, arm.changes);
  if (!changes.length) changes.push(...describeChangedFields(null, arm.changes));
  const { failed, stopped, unjudged, deleted } = arm;
  const missingCounts = Object.entries({ failed, stopped, 'no verdict': unjudged, deleted })
    .filter(([, count]) => count > 0)
    .map(([words, count]) => `${count} ${words}`);
  return html`<tr>
    <td>${arm.name}</td>
    <td><code>${changes.join(', ') || '–'}</code></td>
    <td class="number">${arm.is_pending ? 'not begun' : `${arm.planned - arm.waiting} of ${arm.planned}`}</td>
    <td class="number">${arm.recurred}</td>
    <td class="number">${arm.spared}</td>
    <td class="number">${missingCounts.join(', ') || 0}</td>
    <td class="number">${formatValue(arm.goal_end)}</td>
    <td class="number">${formatValue(arm.p)}</td>
  </tr>`;
}
