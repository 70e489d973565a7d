/** The report of a check before launch: conclusions, pass rate, signal by group size, and rewards of empty texts. */
import { html } from '../../dom.js';
import { formatCount, formatPercent, formatValue, plural } from '../../lib/text/format.js';
import { Icon } from './icons.js';
import { Heads, makeNumberHeads } from './data_table.js';

const ICONS = { good: 'check', warn: 'warn', bad: 'cross' };
const LEVELS = { good: 'Good', warn: 'Warning', bad: 'Problem' };

const USEFUL = 'With right and wrong completions: mean of 1 - p^G - (1-p)^G, with its standard error (se)';
const SILENT = 'Pass rate below p* = 1 - 2^(-1/G): most groups of such a prompt are all wrong';

/**
 * @typedef {(change: Api.ConfigChange) => void} Apply changes the checked form
 * @param {{report: Api.CheckReport, onApply?: Apply}} props
 */
export function CheckReport({ report, onApply }) {
  return html`<div class="check-report">
    <ul class="check-findings">
      ${report.findings.map(
        ({ level, text, change }) => html`<li key=${text} class=${`check-${level}`}>
          <${Icon} name=${ICONS[level]} size=${12} label=${LEVELS[level]} />
          <span>
            ${text}${' '}
            ${
              change &&
              onApply &&
              html`<button
                type="button"
                class="button-quiet"
                title=${`Sets ${change.path} to ${change.value}`}
                onClick=${() => onApply(change)}
              >
                Leave them out
              </button>`
            }
          </span>
        </li>`,
      )}
    </ul>
    <${References} references=${report.references} />
    <${PassRate} report=${report} />
    <${Signal} report=${report} />
    <${Probes} report=${report} />
    <${Forms} forms=${report.forms ?? []} />
    <${Rows} rows=${report.rows ?? []} />
  </div>`;
}

/** Returns a share with its standard error. @param {number | null} share @param {number | null} error */
const withError = (share, error) =>
  `${formatPercent(share)}${typeof error === 'number' ? ` (se ${formatPercent(error)})` : ''}`;

/** @param {{references: Api.ReferenceCheck}} props */
function References({ references: { wrong, examples } }) {
  if (!wrong) return null;
  return html`<details open>
    <summary>Reference answers that are graded wrong (${formatCount(wrong)})</summary>
    <dl class="check-wrong">
      ${examples.map(
        ({ id, source, prompt, answer }) => html`<div key=${id}>
          <dt title=${id}>${source}: ${prompt}</dt>
          <dd>
            <code>${answer}</code>
          </dd>
        </div>`,
      )}
    </dl>
    ${wrong > examples.length && html`<p class="faint">The first ${examples.length} are shown.</p>`}
  </details>`;
}

/** @param {{report: Api.CheckReport}} props */
function PassRate({ report }) {
  return html`<p>
    Pass rate <strong>${withError(report.pass_rate, report.pass_rate_error)}</strong>, from${' '}
    ${plural(report.prompts, 'training prompt')} with ${report.completions} completions each:${' '}
    ${formatPercent(report.never_solved)} were never solved, ${formatPercent(report.always_solved)} always.${' '}
    ${formatPercent(report.truncated)} of the completions were truncated.
  </p>`;
}

/** @param {{report: Api.CheckReport}} props */
function Signal({ report: { signal, group_size: groupSize } }) {
  if (!signal.length) return null;
  return html`<table class="table check-table">
    <caption>Expected signal by group size</caption>
    <${Heads} heads=${[
      ...makeNumberHeads('G'),
      { title: 'groups with signal', isNumber: true, help: USEFUL },
      { title: 'prompts without signal', isNumber: true, help: SILENT },
    ]} />
    <tbody>
      ${signal.map(
        ({ group_size: size, useful, error, silent, silent_below: below }) => html`<tr key=${size}>
          <th scope="row" class="number">${size}${size === groupSize && ' (yours)'}</th>
          <td class="number">${withError(useful, error)}</td>
          <td class="number">
            ${formatPercent(silent)} <span class="faint">(${`p < ${formatValue(below)}`})</span>
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** @param {{report: Api.CheckReport}} props */
function Probes({ report: { probes, reward, reward_right: right, references } }) {
  const rows = [
    { title: 'A right completion', example: '', reward: right },
    { title: 'The reference answer', example: '', reward: references.reward },
    { title: 'An average completion', example: '', reward },
    ...probes,
  ];
  return html`<table class="table check-table">
    <caption>Mean reward</caption>
    <tbody>
      ${rows.map(
        ({ title, example, reward: earned }) => html`<tr key=${title}>
          <th scope="row" title=${example ? `For example: ${example}` : undefined}>${title}</th>
          <td class="number">${formatValue(earned)}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** The results of the policy with other forms of the prompt. @param {{forms: Api.FormTrial[]}} props */
function Forms({ forms }) {
  if (!forms.length) return null;
  const runForm = forms.find(({ name }) => name === 'own');
  return html`<table class="table check-table">
      <caption>Forms of the prompt, a few completions each</caption>
      <${Heads} heads=${[
        'form',
        { title: 'boxed', isNumber: true, help: 'Share of the completions with a boxed answer' },
        { title: 'truncated', isNumber: true, help: 'Share of the completions truncated at the length cap' },
        { title: 'tokens', isNumber: true, help: 'Mean length of a completion' },
      ]} />
      <tbody>
        ${forms.map(
          ({ name, title, policy, answered, truncated, tokens, refusal }) => html`<tr key=${name}>
            <th scope="row" title=${JSON.stringify(policy)}>${title}</th>
            ${
              refusal
                ? html`<td colspan="3">${refusal}</td>`
                : html`
                  <td class="number">${formatPercent(answered)}</td>
                  <td class="number">${formatPercent(truncated)}</td>
                  <td class="number">${formatValue(tokens)}</td>
                `
            }
          </tr>`,
        )}
      </tbody>
    </table>
    ${
      runForm?.prompt &&
      html`<details>
        <summary>The first prompt as the policy reads it</summary>
        <div class="model-text" tabindex="0" role="group" aria-label="First prompt">${runForm.prompt}</div>
      </details>`
    }`;
}

/** Rows that overlap with held-out questions or resemble other rows. @param {{rows: Api.RowsReport[]}} props */
function Rows({ rows }) {
  return rows.flatMap(({ source, contaminated, examples, near = 0, twins = [] }) => [
    html`<${Examples}
      title=${`Training rows of ${source} that overlap with held-out questions`}
      count=${contaminated}
      items=${examples}
    />`,
    html`<${Examples}
      title=${`Training rows of ${source} that are near duplicates`}
      count=${near}
      items=${twins}
    />`,
  ]);
}

/** The first of some rows, collapsed. @param {{title: string, count: number, items: string[]}} props */
function Examples({ title, count, items }) {
  return (
    count > 0 &&
    html`<details>
      <summary>${title} (${formatCount(count)})</summary>
      <ul>
        ${items.map((item) => html`<li key=${item}><code>${item}</code></li>`)}
      </ul>
      ${count > items.length && html`<p class="faint">The first ${items.length} are shown.</p>`}
    </details>`
  );
}
