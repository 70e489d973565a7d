/** A canvas of tokens, with the sampler's log-probability on x and the trainer's on y. Lines mark the cap. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { theme } from '../../app/state.js';
import { formatValue } from '../../lib/text/format.js';

const HEIGHT = 320;
const LEFT = 44;
const BELOW = 34;
const MARGIN = 8;
const DOT = 1.6;
const LEVELS = 8;

/** @param {number[]} values @returns {[number, number]} */
function findExtent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [-1, 0];
}

/** @param {number} share from 0 to 1 @param {boolean} isDark */
const makeHeatColour = (share, isDark) => `hsl(${Math.round(220 - 190 * share)} 80% ${isDark ? 65 : 42}%)`;

/**
 * @param {{data: Api.Mismatch, colourBy: 'position' | 'age', cap: number}} props
 */
export function MismatchScatter({ data, colourBy, cap }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const shade = theme.value;
  const [low, high] = findExtent([...data.sampler, ...data.trainer]);
  const largest = Math.max(1, findExtent(data[colourBy])[1]);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext('2d');
    if (!element || !context || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = HEIGHT * ratio;
    context.scale(ratio, ratio);
    context.clearRect(0, 0, width, HEIGHT);
    const style = getComputedStyle(element);
    const ink = style.getPropertyValue('color');
    const isDark = shade === 'dark';
    const span = high - low || 1;
    const toX = (/** @type {number} */ value) => LEFT + ((value - low) / span) * (width - LEFT - MARGIN);
    const toY = (/** @type {number} */ value) => HEIGHT - BELOW - ((value - low) / span) * (HEIGHT - BELOW - MARGIN);
    const line = (/** @type {number} */ shift, /** @type {number[]} */ dash) => {
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(toX(low), toY(low + shift));
      context.lineTo(toX(high), toY(high + shift));
      context.stroke();
    };
    context.strokeStyle = ink;
    context.save();
    context.beginPath();
    context.rect(LEFT, MARGIN, width - LEFT - MARGIN, HEIGHT - BELOW - MARGIN);
    context.clip();
    context.globalAlpha = 0.5;
    line(0, []);
    line(Math.log(cap), [5, 4]);
    if (data.low !== null && data.low > 0) line(Math.log(data.low), [5, 4]);
    context.globalAlpha = 0.75;
    data.sampler.forEach((sampler, i) => {
      context.fillStyle = makeHeatColour(Math.round((data[colourBy][i] / largest) * LEVELS) / LEVELS, isDark);
      context.beginPath();
      context.arc(toX(sampler), toY(data.trainer[i]), DOT, 0, 2 * Math.PI);
      context.fill();
    });
    context.restore();
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.fillStyle = ink;
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'center';
    for (const share of [0, 0.5, 1])
      context.fillText(formatValue(low + share * span), toX(low + share * span) - 14 * share, HEIGHT - 20);
    context.fillText('log-probability by the sampler', LEFT + (width - LEFT) / 2, HEIGHT - 5);
    context.textAlign = 'right';
    for (const share of [0.5, 1])
      context.fillText(formatValue(low + share * span), LEFT - 5, toY(low + share * span) + 8 * share);
  }, [data, colourBy, cap, width, shade]);

  return html`<figure class="mismatch-figure">
    <canvas
      ref=${canvas}
      style=${{ height: `${HEIGHT}px` }}
      role="img"
      aria-label=${`Log-probabilities of ${data.sampler.length} tokens by sampler and trainer`}
    ></canvas>
    <figcaption class="faint">
      Up: log-probability by the trainer. Line: they agree; dashes: rho at the cap. Blue to orange:
      ${colourBy === 'age' ? ' staleness' : ' position'} 0 to ${formatValue(largest)}.
    </figcaption>
  </figure>`;
}
