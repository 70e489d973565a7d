/** The objective of a config as the server writes it down, and doubts about the config. */
import { h, html, useMemo } from '../dom.js';
import { mathTree } from '../lib/mathml.js';
import { Icon } from './icons.js';

/** @param {{valid: {formula: string, formula_mathml?: string, warnings: string[]}}} props */
export function Formula({ valid }) {
  const { formula, formula_mathml: mathml, warnings } = valid;
  const tree = useMemo(() => (mathml ? mathTree(mathml) : null), [mathml]);
  return html`${tree ? html`<div class="formula-math" role="math" aria-label=${formula} title=${formula} tabindex="0">${elementOf(tree)}</div>` : html`<pre class="formula-text">${formula}</pre>`}
    ${warnings.map((warning) => html`<p class="formula-warning" key=${warning}><${Icon} name="warn" size=${12} /> ${warning}</p>`)}`;
}

/** @param {import('../lib/mathml.js').MathNode} node */
const elementOf = (node) => (typeof node === 'string' ? node
  : h(node.tag, node.tag === 'math' ? { display: 'block' } : null, ...node.children.map(elementOf)));
