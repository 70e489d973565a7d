/** Colours of the current theme as values for Plotly. */

const TOKENS = {
  grid: '--line',
  axis: '--line-strong',
  label: '--ink-3',
  ink: '--ink',
  raised: '--raised',
  bad: '--bad',
  good: '--good',
};

/** @type {Map<string, Record<string, string>>} */
const read = new Map();

/** Returns the colours of the theme that is shown. @param {string} name @returns {Record<string, string>} */
export function makeChartTheme(name) {
  const theme = read.get(name) ?? readTheme();
  read.set(name, theme);
  return theme;
}

/** @returns {Record<string, string>} */
function readTheme() {
  const probe = document.createElement('span');
  document.body.append(probe);
  const colour = (/** @type {string} */ token) => {
    probe.style.color = `var(${token})`;
    return getComputedStyle(probe).color;
  };
  const theme = Object.fromEntries(Object.entries(TOKENS).map(([name, token]) => [name, colour(token)]));
  theme.background = getComputedStyle(document.body).backgroundColor;
  theme.font = getComputedStyle(document.body).fontFamily;
  probe.remove();
  return theme;
}
