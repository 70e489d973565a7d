import { makeFigure } from '../../frontend/src/charts/figure.js';

/** A run's series as the API sends it. */
export const series = (changes = {}) => ({
  run: 'r',
  name: 'r',
  metric: 'loss/total',
  x: [1, 2, 4],
  steps: [1, 2, 4],
  values: [0, 1, 2],
  non_finite: [],
  raw_points: 3,
  ...changes,
});

/** The figure of some series. */
export function figure(items, view = {}) {
  const look = { colour: '#112233', dash: 'solid' };
  const lines = items.map((item) => ({ series: item, name: item.name, look }));
  const plain = { metric: 'loss/total', xKind: 'step', logX: false, logY: false, zoom: null, theme: {} };
  return makeFigure(lines, { ...plain, ...view });
}
