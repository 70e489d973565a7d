/** Converts MathML from the server to a tree of known elements. All other content becomes text. */
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

/** @typedef {{tag: string, children: MathNode[]}} MathElement */
/** @typedef {string | MathElement} MathNode */

/** @param {string} source @returns {MathElement | null} null if it cannot be read */
export function parseMath(source) {
  const xmlDocument = parseXml(source);
  return xmlDocument.querySelector('parsererror') || xmlDocument.documentElement.localName !== 'math'
    ? null
    : /** @type {MathElement} */ (readNode(xmlDocument.documentElement));
}

/** @param {Element} element @returns {MathNode} */
function readNode(element) {
  if (!KNOWN.has(element.localName)) return element.textContent ?? '';
  const children = [...element.childNodes].map((child) =>
    child instanceof Element ? readNode(child) : (child.textContent ?? ''),
  );
  return { tag: element.localName, children };
}
