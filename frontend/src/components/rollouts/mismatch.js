/** Sampler and trainer compared token by token, with a simulation of caps on the importance weights. */
import { html, useState } from '../../dom.js';
import { useGet } from '../../data/resource.js';
import { formatCount, formatPercent, formatValue, plural } from '../../lib/text/format.js';
import { Loaded, Skeleton } from '../shared/states.js';
import { Select } from '../shared/marks.js';
import { MismatchScatter } from './mismatch_scatter.js';

const OWN = { value: '', label: "the run's own" };
const KINDS = [
  { value: 'token_tis', label: 'truncate tokens' },
  { value: 'token_mask', label: 'mask tokens' },
  { value: 'seq_tis', label: 'truncate completions' },
  { value: 'seq_mask', label: 'mask completions' },
];
const LEVELS = [
  { value: 'product', label: 'product of tokens' },
  { value: 'geo', label: 'geometric mean' },
];
const COLOURS = [
  { value: 'position', label: 'position' },
  { value: 'age', label: 'staleness' },
];
const USUAL_CAP = 2;

/** @param {{run: string, step: number}} props */
export function MismatchOfStep({ run, step }) {
  const [isOpen, setIsOpen] = useState(false);
  const [kind, setKind] = useState('');
  const [level, setLevel] = useState('product');
  const [colourBy, setColourBy] = useState(/** @type {'position' | 'age'} */ ('position'));
  const resource = useGet(isOpen ? '/rollouts/mismatch' : null, { run, step, kind: kind || undefined, level });
  return html`<details class="card what-if" onToggle=${(
    /** @type {Event & {currentTarget: HTMLDetailsElement}} */ event,
  ) => setIsOpen(event.currentTarget.open)}>
    <summary>Truncation cap: sampler against trainer at step ${step}</summary>
    <div class="toolbar mismatch-tools">
      <${Select} label="correction" value=${kind} options=${[OWN, ...KINDS]} onChange=${setKind} />
      ${
        kind.startsWith('seq') &&
        html`<${Select} label="ratio of a completion" value=${level} options=${LEVELS} onChange=${setLevel} />`
      }
      <${Select} label="colour by" value=${colourBy} options=${COLOURS} onChange=${setColourBy} />
    </div>
    ${
      isOpen &&
      html`<${Loaded} resource=${resource} skeleton=${html`<${Skeleton} rows=${6} />`}>
        ${(/** @type {Api.Mismatch} */ data) =>
          html`<${Simulator} data=${data} colourBy=${colourBy} key=${`${data.kind} ${step}`} />`}
      <//>`
    }
  </details>`;
}

/** Returns the index in `caps` of the run's own cap, else of the usual cap. @param {Api.Mismatch} data */
function findFirstCap({ caps, run_cap: runCap }) {
  const index = caps.findIndex(({ cap }) => cap === (runCap ?? USUAL_CAP));
  return index < 0 ? Math.floor(caps.length / 2) : index;
}

/** @param {{data: Api.Mismatch, colourBy: 'position' | 'age'}} props */
function Simulator({ data, colourBy }) {
  const [capIndex, setCapIndex] = useState(findFirstCap(data));
  const { caps, run_cap: runCap } = data;
  const simulation = caps[capIndex];
  const isMask = data.kind.endsWith('mask');
  const rows = [
    [isMask ? 'tokens dropped' : 'tokens truncated', formatPercent(simulation.limited, 2)],
    ['mean weight', formatValue(simulation.mean)],
    ['effective sample size', formatPercent(simulation.ess, 1)],
    ['weight lost (bias)', formatPercent(simulation.lost, 2)],
  ];
  return html`<div class="mismatch">
    <${MismatchScatter} data=${data} colourBy=${colourBy} cap=${simulation.cap} />
    <div>
      <label class="mismatch-cap">
        ${isMask ? 'largest rho' : 'cap'} <b>${formatValue(simulation.cap)}</b>
        ${runCap !== null && simulation.cap === runCap && html` <span class="faint">the run's own</span>`}
        <input
          type="range"
          aria-label="Cap"
          aria-valuetext=${formatValue(simulation.cap)}
          min="0"
          max=${caps.length - 1}
          value=${capIndex}
          onInput=${(/** @type {Event & {target: HTMLInputElement}} */ event) => setCapIndex(Number(event.target.value))}
        />
      </label>
      ${
        runCap !== null &&
        simulation.cap !== runCap &&
        html`<button type="button" class="button button-small" onClick=${() => setCapIndex(findFirstCap(data))}>
          Back to ${formatValue(runCap)}
        </button>`
      }
      <dl class="mismatch-numbers">
        ${rows.map(
          ([name, value]) => html`<div key=${name}>
            <dt>${name}</dt>
            <dd>${value}</dd>
          </div>`,
        )}
      </dl>
      <p class="quiet">
        ${runCap === null ? 'The run used no such correction. ' : ''}
        ${isMask && data.low !== null ? `A rho below ${formatValue(data.low)} is dropped, too. ` : ''}
        All ${formatCount(data.tokens)} tokens of ${plural(data.completions, 'completion')} count, from
        ${' '}${formatCount(data.groups)} of ${formatCount(data.of_groups)} stored groups; the picture shows
        ${' '}${formatCount(data.sampler.length)} of them.
      </p>
    </div>
  </div>`;
}
