/** The objective of a config as the server writes it, with warnings about the config. */
import { h, html, useMemo } from '../../dom.js';
import { parseMath } from '../../lib/mathml.js';
import { Icon } from './icons.js';

/**
 * @typedef {Api.Symbol} Entry
 * @param {{valid: Api.Validated, isOpen?: boolean}} props
 */
export function Formula({ valid, isOpen = false }) {
  const { formula, formula_mathml: mathml, formula_notes: notes = [], formula_legend: legend = [], warnings } = valid;
  const tree = useMemo(() => (mathml ? parseMath(mathml) : null), [mathml]);
  return html`
    ${
      tree
        ? html`<div class="formula-math" role="math" aria-label=${formula} title=${formula} tabindex="0">
          ${renderNode(tree)}
        </div>`
        : html`<pre class="formula-text">${formula}</pre>`
    }
    ${
      tree &&
      notes.map(
        (note) => html`<p class="formula-note" key=${note}>
          ${note}
        </p>`,
      )
    }
    ${legend.length > 0 && html`<${Legend} entries=${legend} isOpen=${isOpen} />`}
    ${warnings.map(
      (warning) => html`<p class="formula-warning" key=${warning}>
        <${Icon} name="warn" size=${12} /> ${warning}
      </p>`,
    )}
  `;
}

/** The meaning of each symbol. @param {{entries: Entry[], isOpen: boolean}} props */
function Legend({ entries, isOpen }) {
  return html`<details class="more formula-legend" open=${isOpen}>
    <summary>What the symbols mean</summary>
    <dl>
      ${entries.map(
        ({ symbol, mathml, meaning }) => html`<div key=${symbol}>
          <dt>
            <${Written} mathml=${mathml} text=${symbol} />
          </dt>
          <dd>${meaning}</dd>
        </div>`,
      )}
    </dl>
  </details>`;
}

/**
 * A formula in a line of text. A word stays plain text, which can wrap.
 * @param {{mathml: string, text: string}} props
 */
function Written({ mathml, text }) {
  const tree = useMemo(() => parseMath(mathml), [mathml]);
  const isWord = !tree || tree.children.every((child) => typeof child !== 'string' && child.tag === 'mtext');
  return isWord ? text : h('math', null, ...tree.children.map(renderNode));
}

/**
 * @param {import('../../lib/mathml.js').MathNode} node
 * @returns {import('../../../vendor/preact.js').ComponentChild}
 */
const renderNode = (node) =>
  typeof node === 'string'
    ? node
    : h(node.tag, node.tag === 'math' ? { display: 'block' } : null, ...node.children.map(renderNode));
