/**
 * A report as one HTML file without scripts and external resources, in which every text is escaped. Pure. Its policy
 * allows only its own styles and images, so that nothing in it can be executed.
 */
import { makeVisible } from './text/visible.js';
import { lookup } from './lookup.js';

/**
 * @typedef {{head: string[], rows: unknown[][]}} Table
 * @typedef {{title: string, note?: string, table?: Table}} Section
 * @typedef {{title: string, picture: string, values?: Table}} Chart `picture`: source of an SVG
 * @typedef {{title: string, prompt: string, answer: string, completions: {facts: string, text: string}[]}} Rollout
 * @typedef {{title: string, note: string, link: string, created: string, facts: string[], charts: Chart[],
 *   sections: Section[], rollouts: Rollout[], colours: {background: string, ink: string, quiet: string,
 *   line: string}}} Report `facts`: the data of the charts; `colours`: as CSS
 */

export const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/** @type {Record<string, string>} */
const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** Returns text escaped for HTML, with visible control characters. @param {unknown} text */
export const escapeHtml = (text) => makeVisible(String(text)).replace(/[&<>"']/g, (sign) => lookup(ENTITIES, sign));

/** Returns a link if an address leads to a page. Addresses with other schemes stay text. @param {string} link */
const makeLink = (link) =>
  /^https?:\/\//.test(link)
    ? `<a href="${escapeHtml(link)}" rel="noopener noreferrer">${escapeHtml(link)}</a>`
    : escapeHtml(link);

/** Returns an SVG with one decimal per coordinate, because more decimals double its size. @param {string} svg */
export const compact = (svg) =>
  svg.replace(/ d="[^"]*"/g, (path) => path.replace(/(\.\d)\d+/g, '$1')).replaceAll('vector-effect: none; ', '');

const PLAIN = /%(?:20|2C|3A|3B|3D|2F|40|5B|5D|7B|7D)/g;

/** Returns a picture as an address, because scripts in an image are never executed. @param {string} svg */
export const asAddress = (svg) =>
  `data:image/svg+xml,${encodeURIComponent(compact(svg)).replace(PLAIN, decodeURIComponent).replaceAll("'", '%27')}`;

/** @param {Table['rows'][number]} row */
const renderRow = (row) => `<tr>${row.map((cell) => `<td>${escapeHtml(cell ?? '')}</td>`).join('')}</tr>`;

/** @param {Table} table */
const renderTable = ({ head, rows }) => `<div class="scroll"><table>
<thead><tr>${head.map((cell) => `<th>${escapeHtml(cell)}</th>`).join('')}</tr></thead>
<tbody>${rows.map(renderRow).join('\n')}</tbody>
</table></div>`;

/** @param {Chart} chart */
const renderChart = ({ title, picture, values }) => `<figure>
<img alt="${escapeHtml(title)}" src="${asAddress(picture)}">
${values ? `<details><summary>Values of ${escapeHtml(title)}</summary>${renderTable(values)}</details>` : ''}
</figure>`;

/**
 * Returns the possible contents of a report, largest first: with fewer points per curve, then without the charts'
 * values, then without rollouts.
 * @param {number} points @param {number} minPoints
 * @returns {Generator<{points: number, values: boolean, rollouts: boolean}>}
 */
export function* listSizes(points, minPoints) {
  for (let count = points; count > minPoints; count = Math.floor(count / 2))
    yield { points: count, values: true, rollouts: true };
  yield { points: minPoints, values: true, rollouts: true };
  yield { points: minPoints, values: false, rollouts: true };
  yield { points: minPoints, values: false, rollouts: false };
}

/** @param {Section} section */
const renderSection = ({ title, note, table }) =>
  `<h2>${escapeHtml(title)}</h2>${note ? `<p class="quiet">${escapeHtml(note)}</p>` : ''}${table ? renderTable(table) : ''}`;

/** @param {Rollout} rollout */
const renderRollout = ({ title, prompt, answer, completions }) => `<details open><summary>${escapeHtml(title)}</summary>
<p class="quiet">prompt</p><pre>${escapeHtml(prompt)}</pre><p class="quiet">answer</p><pre>${escapeHtml(answer)}</pre>
${completions.map(({ facts, text }) => `<p class="quiet">${escapeHtml(facts)}</p><pre>${escapeHtml(text)}</pre>`).join('\n')}
</details>`;

/** @param {Report} report @returns {string} */
export function reportHtml({ title, note, link, created, facts, charts, sections, rollouts, colours }) {
  const { background, ink, quiet, line } = colours;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escapeHtml(POLICY)}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>
body { margin: 0 auto; padding: 24px; max-width: 1040px; background: ${background}; color: ${ink};
  font: 14px/1.5 system-ui, sans-serif }
h1 { font-size: 22px } h2 { margin-top: 40px; font-size: 17px } .quiet { color: ${quiet} }
a { color: inherit; overflow-wrap: anywhere } figure { margin: 24px 0 } img { max-width: 100%; height: auto }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: 3px 12px 3px 0; border-bottom: 1px solid ${line}; text-align: left; vertical-align: top }
th { color: ${quiet}; font-weight: 400 } summary { cursor: pointer; margin: 8px 0 }
pre { margin: 0 0 8px; padding: 8px; border: 1px solid ${line}; white-space: pre-wrap; overflow-wrap: anywhere }
</style>
</head>
<body>
<h1>${escapeHtml(title)}</h1>
<p class="quiet">${[...facts, `made ${created}`].map(escapeHtml).join(' · ')}</p>
<p class="quiet">${makeLink(link)}</p>
${note ? `<p>${escapeHtml(note).replaceAll('\n', '<br>')}</p>` : ''}
<h2>Curves</h2>
${charts.map(renderChart).join('\n')}
${sections.map(renderSection).join('\n')}
${rollouts.length ? `<h2>Rollouts</h2>${rollouts.map(renderRollout).join('\n')}` : ''}
</body>
</html>
`;
}
