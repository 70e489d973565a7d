/** Small marks of identity and status: swatch, status, tag and verdict. */
import { html } from '../../dom.js';
import { VERDICTS, verdictText, verdictTitle } from '../../lib/runs/verdicts.js';
import { Icon } from './icons.js';
import { lookup } from '../../lib/lookup.js';

/**
 * The short line of a run or a group, in its colour and dash.
 * @param {{look: import('../../lib/colours.js').Look, isOff?: boolean}} props
 */
export function Swatch({ look, isOff = false }) {
  return html`<svg class=${isOff ? 'swatch swatch-off' : 'swatch'} width="18" height="4" aria-hidden="true">
    <line
      x1="0"
      y1="2"
      x2="18"
      y2="2"
      stroke=${look.colour}
      stroke-width="3"
      stroke-dasharray=${DASHES[look.dash]}
    />
  </svg>`;
}

const DASHES = { solid: 'none', dash: '6 3', dot: '3 2', dashdot: '7 2 2 2' };

/** @type {Record<string, {icon: string, text: string}>} */
const STATUS = {
  queued: { icon: 'circle', text: 'queued' },
  running: { icon: 'play', text: 'running' },
  paused: { icon: 'pause', text: 'paused' },
  finished: { icon: 'check', text: 'finished' },
  stopped: { icon: 'stop', text: 'stopped' },
  failed: { icon: 'cross', text: 'failed' },
};
/** @type {Record<string, string>} */
const REQUESTED_STATUS = { stop: 'stopping', prune: 'stopping', pause: 'pausing' };

/**
 * The status of a run as icon, word and colour, or a requested change until it is done.
 * @param {{run: {status: string, requested_action?: string, reason?: string}, bare?: boolean}} props
 */
export function Status({ run, bare = false }) {
  const { icon, text } = lookup(STATUS, run.status) ?? { icon: 'dots', text: run.status };
  const word = (run.status === 'running' && lookup(REQUESTED_STATUS, run.requested_action ?? '')) || text;
  return html`<span class=${`status status-${run.status}`} title=${run.reason ? `${word}: ${run.reason}` : word}>
    <${Icon} name=${icon} size=${12} label=${bare ? word : undefined} />
    ${!bare && html`<span>${word}</span>`}
  </span>`;
}

/**
 * The verdict of a run's diagnosis as icon, word and colour, with the step of the onset.
 * @param {{run: Api.RunItem}} props
 */
export function Verdict({ run }) {
  if (!run.verdict) return html`<span class="faint">–</span>`;
  const { icon, tone } = VERDICTS[run.verdict];
  return html`<span class=${`status verdict-${tone}`} title=${verdictText(run)}>
    <${Icon} name=${icon} size=${12} />
    <span>
      ${verdictTitle(run.verdict)}
      ${run.onset && html`${' '}<span class="faint">by ${run.onset.sick}</span>`}
    </span>
  </span>`;
}

/** @param {{children: any, onRemove?: () => void}} props */
export function Tag({ children, onRemove }) {
  return html`<span class="tag">
    ${children}
    ${
      onRemove &&
      html`<button aria-label=${`Remove ${children}`} onClick=${onRemove}>
        <${Icon} name="cross" size=${10} />
      </button>`
    }
  </span>`;
}

/**
 * A choice of a few options, as joined buttons.
 * @param {{value: string, options: {value: string, label: string, title?: string}[], onChange: (value:
 *   string) => void, label: string}} props
 */
export function Segments({ value, options, onChange, label }) {
  return html`<div class="segments" role="group" aria-label=${label}>
    ${options.map(
      (option) => html`<button
        type="button"
        key=${option.value}
        aria-pressed=${option.value === value}
        title=${option.title}
        onClick=${() => onChange(option.value)}
      >
        ${option.label}
      </button>`,
    )}
  </div>`;
}

/**
 * A labelled select.
 * @param {{label: string, value: string, options: (string | {value: string, label: string})[], onChange: (value:
 *   string) => void}} props
 */
export function Select({ label, value, options, onChange }) {
  return html`<label class="select">
    <span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map((option) => {
        const { value: optionValue, label: text } =
          typeof option === 'string' ? { value: option, label: option } : option;
        return html`<option key=${optionValue} value=${optionValue} selected=${optionValue === value}>
          ${text}
        </option>`;
      })}
    </select>
  </label>`;
}

/** The number of done steps and of all steps. @param {{doneSteps: number | null, all: number | null}} props */
export function Progress({ doneSteps, all }) {
  const share = all ? Math.min(1, (doneSteps ?? 0) / all) : 0;
  return html`<span class="progress" role="img" aria-label=${`${doneSteps ?? 0} of ${all ?? '?'} steps`}>
    <span style=${{ width: `${share * 100}%` }}></span>
  </span>`;
}

/**
 * The sandbox layers around the processes that read completions, or nothing for runs before sandboxing.
 * @param {{layers?: Api.SandboxLayers}} props
 */
export function SandboxLayers({ layers }) {
  if (!layers) return '–';
  const { on, missing } = layers;
  return missing.length
    ? html`<span class="is-warning" title=${`On: ${on.join(', ')}`}>
      ${missing.join(', ')} missing
    </span>`
    : html`<span title=${on.join(', ')}>all ${on.length} layers</span>`;
}
