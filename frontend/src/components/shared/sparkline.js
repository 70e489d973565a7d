/** A curve without axes in the colour of its surroundings, where a band and a line mark steps. */
import { html } from '../../dom.js';
import { makeCurve } from '../../lib/curve.js';

const WIDTH = 200;
const HEIGHT = 40;

/**
 * @param {{series: import('../../charts/figure.js').Series | undefined, band?: Api.Steps | null,
 *   markedStep?: number | null, label?: string}} props without a series, the space stays empty; without a label, it is
 *   decorative
 */
export function Sparkline({ series, band, markedStep, label }) {
  const steps = series?.steps ?? [];
  const { x, path } = makeCurve(
    { steps, values: series?.values ?? [] },
    { from: steps[0] ?? 0, to: steps[steps.length - 1] ?? 1, width: WIDTH, height: HEIGHT },
  );
  const ariaProps = label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' };
  return html`<svg class="sparkline" viewBox=${`0 -2 ${WIDTH} ${HEIGHT + 4}`} preserveAspectRatio="none" ...${ariaProps}>
    ${
      path &&
      band &&
      html`<rect
        class="sparkline-band"
        x=${x(band.healthy)}
        width=${Math.max(2, x(band.sick) - x(band.healthy))}
        y="-2"
        height=${HEIGHT + 4}
      />`
    }
    ${
      path &&
      typeof markedStep === 'number' &&
      html`<line class="sparkline-at" x1=${x(markedStep)} x2=${x(markedStep)} y1="-2" y2=${HEIGHT + 2} />`
    }
    <path d=${path} />
  </svg>`;
}
