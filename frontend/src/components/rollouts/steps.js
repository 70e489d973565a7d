/** The choice of a step: a slider over a curve of the run, with arrows and a field. */
import { html } from '../../dom.js';
import { useSeries } from '../../data/series.js';
import { useGet } from '../../data/resource.js';
import { formatValue, plural } from '../../lib/text/format.js';
import { findNearestStep } from '../../lib/rollouts.js';
import { stepsText } from '../../lib/runs/verdicts.js';
import { Icon, IconButton } from '../shared/icons.js';
import { Select } from '../shared/marks.js';
import { lookup } from '../../lib/lookup.js';

/** @type {import('../../data/series.js').Shape} */
const SHAPE = { x: 'step', smoothing: 0, groupBy: '', band: '', zoom: null, points: 400 };
const HEIGHT = 100;

/** Metrics that the slider can show. The reward is used if correctness was not recorded. */
export const CURVES = {
  'reward/accuracy': 'correct',
  'reward/mean': 'reward',
  'length/truncated_frac': 'truncated',
  'text/repetition': 'repeated',
  'groups/zero_variance_frac': 'without signal',
  'reward/unearned_share': 'unearned reward',
};

/**
 * Returns the lowest and the highest value of all curves, with room on both sides of a flat curve.
 * @param {number[]} values @returns {[number, number]}
 */
function findExtent(values) {
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/**
 * @param {{run: string, steps: number[], step: number, onset: Api.Steps | null, curve: string, onCurve: (curve:
 *   string) => void, onStep: (step: number) => void}} props
 *   `steps`: those with rollouts, ascending; `onset`: when the goal began to fall; `curve`: a name of `CURVES`
 */
export function StepBar({ run, steps, step, onset, curve, onCurve, onStep }) {
  const index = findNearestStep(steps, step);
  const go = (/** @type {number} */ offset) => {
    const next = steps[index + offset];
    if (next !== undefined) onStep(next);
  };
  const handleChange = (/** @type {InputEvent} */ event) => {
    const typedStep = Number(event.target.value);
    if (Number.isFinite(typedStep)) onStep(steps[findNearestStep(steps, typedStep)]);
  };
  return html`<div class="step-bar">
    <div class="step-pick">
      <${IconButton}
        icon="left"
        label="Previous step"
        title="Previous step (P, ←)"
        disabled=${index <= 0}
        onClick=${() => go(-1)}
      />
      <label>
        step${' '}
        <input
          class="field"
          type="number"
          value=${steps[index]}
          min=${steps[0]}
          max=${steps.at(-1)}
          onChange=${handleChange}
        />
      </label>
      <button
        type="button"
        class="button-icon"
        aria-label="Next step"
        title="Next step (N, →)"
        disabled=${index + 1 >= steps.length}
        onClick=${() => go(1)}
      >
        <${Icon} name="right" />
      </button>
      <span class="faint">${plural(steps.length, 'step')} with rollouts</span>
      <${Select}
        label="curve"
        value=${curve}
        options=${Object.entries(CURVES).map(([value, label]) => ({ value, label }))}
        onChange=${onCurve}
      />
      ${
        onset &&
        html`<button
          type="button"
          class="button-quiet"
          title="Go to the first stored step after the onset"
          onClick=${() => onStep(steps.find((storedStep) => storedStep >= onset.sick) ?? steps[steps.length - 1])}
        >
          onset ${stepsText(onset)}
        </button>`
      }
    </div>
    ${
      steps.length > 1 &&
      html`<${Slider} run=${run} steps=${steps} index=${index} onset=${onset} curve=${curve} onStep=${onStep} go=${go} />`
    }
  </div>`;
}

/** @typedef {Event & {target: HTMLInputElement}} InputEvent */

/**
 * @param {{run: string, steps: number[], index: number, onset: Api.Steps | null, curve: string, onStep: (step: number)
 *   => void, go: (by: number) => void}} props `index`: the index of the step in `steps`
 */
function Slider({ run, steps, index, onset, curve, onStep, go }) {
  const [from, to] = [Math.min(0, steps[0]), Math.max(steps[steps.length - 1], steps[0] + 1)];
  const toPercent = (/** @type {number} */ step) => ((step - from) / (to - from)) * 100;
  const slide = (/** @type {InputEvent} */ event) => onStep(findClosest(steps, Number(event.target.value)));
  const keys = (/** @type {KeyboardEvent} */ event) => {
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowLeft: () => go(-1),
      ArrowDown: () => go(-1),
      ArrowRight: () => go(1),
      ArrowUp: () => go(1),
      Home: () => onStep(steps[0]),
      End: () => onStep(steps[steps.length - 1]),
    };
    if (!lookup(moves, event.key)) return;
    event.preventDefault();
    lookup(moves, event.key)();
  };
  return html`<div class="step-slider">
    <${Curves} run=${run} from=${from} to=${to} step=${steps[index]} curve=${curve} />
    <${Warnings} run=${run} toPercent=${toPercent} />
    ${
      onset &&
      html`<span
        class="step-onset"
        style=${{ left: `${clampPercent(toPercent(onset.healthy))}%`, right: `${clampPercent(100 - toPercent(onset.sick))}%` }}
      ></span>`
    }
    <span class="step-cursor" style=${{ left: `${toPercent(steps[index])}%` }}></span>
    <input
      type="range"
      aria-label="Step"
      aria-valuetext=${`step ${steps[index]}`}
      min=${from}
      max=${to}
      value=${steps[index]}
      onInput=${slide}
      onKeyDown=${keys}
    />
  </div>`;
}

const clampPercent = (/** @type {number} */ percent) => Math.min(100, Math.max(0, percent));

/** Returns the recorded step nearest to a position of the slider. @param {number[]} steps @param {number} value */
function findClosest(steps, value) {
  const indexBefore = findNearestStep(steps, value);
  const indexAfter = Math.min(steps.length - 1, indexBefore + 1);
  return Math.abs(steps[indexAfter] - value) < Math.abs(steps[indexBefore] - value)
    ? steps[indexAfter]
    : steps[indexBefore];
}

/** The warnings of the diagnosis as ticks. @param {{run: string, toPercent: (step: number) => number}} props */
function Warnings({ run, toPercent }) {
  const diagnosis = useGet(`/runs/${encodeURIComponent(run)}/diagnosis`);
  const data = /** @type {Api.DiagnosisItem | undefined} */ (/** @type {unknown} */ (diagnosis.data));
  return (data?.warnings ?? [])
    .filter(({ onset }) => onset)
    .map(
      ({ title, onset }, i) => html`<span
        key=${i}
        class="step-warning"
        title=${`${title}, ${stepsText(onset)}`}
        style=${{ left: `${clampPercent(toPercent(onset.sick))}%` }}
      ></span>`,
    );
}

/**
 * The chosen metric as a line, and held-out accuracy as points on the same scale, to show when they diverge.
 * @param {{run: string, from: number, to: number, step: number, curve: string}} props
 */
function Curves({ run, from, to, step, curve }) {
  const chosenSeries = useSeries(curve, [run], SHAPE, true).series[0];
  const fallback = useSeries('reward/mean', [run], SHAPE, true).series[0];
  const isFallback = curve === 'reward/accuracy' && !chosenSeries?.steps.length;
  const reward = isFallback ? fallback : chosenSeries;
  const name = CURVES[/** @type {keyof typeof CURVES} */ (isFallback ? 'reward/mean' : curve)];
  const accuracy = useSeries('eval/accuracy', [run], SHAPE, true).series[0];
  const [low, high] = findExtent([...(reward?.values ?? []), ...(accuracy?.values ?? [])]);
  const pathPoint = (/** @type {number} */ x, /** @type {number} */ y) =>
    `${(((x - from) / (to - from)) * 1000).toFixed(1)} ${(HEIGHT - ((y - low) / (high - low)) * HEIGHT).toFixed(1)}`;
  const points = (/** @type {Series | undefined} */ series) =>
    series ? series.steps.map((recordedStep, i) => pathPoint(recordedStep, series.values[i])) : [];
  return html`
    <svg viewBox=${`0 -8 1000 ${HEIGHT + 16}`} preserveAspectRatio="none" aria-hidden="true">
      ${reward?.values.length > 1 && html`<path class="step-reward" d=${`M${points(reward).join('L')}`} />`}
      <path
        class="step-accuracy"
        d=${points(accuracy)
          .map((point) => `M${point}h0`)
          .join('')}
      />
    </svg>
    <span class="step-legend">
      <span class="step-legend-reward">${name} ${describeValue(reward, step)}</span>
      ${
        accuracy &&
        html`<span class="step-legend-accuracy">
          eval accuracy ${describeValue(accuracy, step)}${describeAge(accuracy, step)}
        </span>`
      }
    </span>
  `;
}

/** @typedef {import('../../charts/figure.js').Series} Series */

/**
 * Returns the step of the last evaluation, if it is earlier than this step.
 * @param {Series} series @param {number} step
 */
function describeAge(series, step) {
  if (!series.steps.length || series.steps[0] > step) return '';
  const recordedStep = series.steps[findNearestStep(series.steps, step)];
  return recordedStep === step ? '' : ` (measured at step ${recordedStep})`;
}

/**
 * Returns the value at a step, or the newest value before it.
 * @param {Series | undefined} series @param {number} step
 */
function describeValue(series, step) {
  if (!series?.steps.length || series.steps[0] > step) return '–';
  return formatValue(series.values[findNearestStep(series.steps, step)]);
}
