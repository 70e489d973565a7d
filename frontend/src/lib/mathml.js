/** MathML from the server as a plain tree of known elements; whatever else it holds becomes text. */
import { parseXml } from './trusted.js';

const KNOWN = new Set([
  'math',
  'mrow',
  'mi',
  'mn',
  'mo',
  'mtext',
  'mspace',
  'mfrac',
  'msqrt',
  'mroot',
  'msub',
  'msup',
  'msubsup',
  'munder',
  'mover',
  'munderover',
  'mtable',
  'mtr',
  'mtd',
  'mstyle',
  'mpadded',
]);

/** @typedef {string | {tag: string, children: MathNode[]}} MathNode */

/** @param {string} source @returns {MathNode | null} null where it cannot be read */
export function mathTree(source) {
  const parsed = parseXml(source);
  return parsed.querySelector('parsererror') || parsed.documentElement.localName !== 'math'
    ? null
    : nodeOf(parsed.documentElement);
}

function nodeOf(element) {
  if (!KNOWN.has(element.localName)) return element.textContent;
  const children = [...element.childNodes].map((child) =>
    child.nodeType === Node.ELEMENT_NODE ? nodeOf(child) : child.textContent,
  );
  return { tag: element.localName, children };
}
