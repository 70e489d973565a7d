/** Curves as the service sends them with `compact`, and as everything here reads them. */

/** @typedef {Api.SeriesItem & {x: number[]}} Series */
/** @typedef {'step' | 'wall' | 'tokens' | 'samples' | 'flops'} XKind of x axis */

/** Units of the axes that count something. */
export const X_UNITS = { step: 'step', tokens: 'tokens', samples: 'samples', flops: 'FLOP' };

/**
 * A curve with its steps and its places on the x axis written out.
 * @param {Api.SeriesItem} item of which each step is the distance to the one before
 * @returns {Series}
 */
export function expanded(item) {
  let step = 0;
  const steps = item.steps.map((distance) => {
    step += distance;
    return step;
  });
  return { ...item, steps, x: item.x ?? steps };
}
