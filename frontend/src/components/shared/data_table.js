/** Tables of numbers with a row of titles. */
import { html } from '../../dom.js';

/** @typedef {string | {title: any, isNumber?: boolean, help?: string}} Head a column's title */

/** Returns titles of numeric columns. @param {any[]} titles @returns {Head[]} */
export const makeNumberHeads = (...titles) => titles.map((title) => ({ title, isNumber: true }));

/**
 * The row of titles, without those that are null or false.
 * @param {{heads: (Head | false | null | undefined)[]}} props
 */
export function Heads({ heads }) {
  return html`<thead>
    <tr>
      ${heads.map((head, i) => {
        if (!head && head !== '') return null;
        const { title, isNumber, help } = typeof head === 'string' ? { title: head } : head;
        return html`<th key=${i} scope="col" class=${isNumber ? 'number' : undefined} title=${help}>${title}</th>`;
      })}
    </tr>
  </thead>`;
}

/**
 * A table in a frame that scrolls horizontally. Screen readers read `name`, and the rows are the children.
 * @param {{name: string, heads: (Head | false | null | undefined)[], frame?: string, kind?: string, children: any}} props
 */
export function DataTable({ name, heads, frame = 'table-scroll', kind = 'table', children }) {
  return html`<div class=${frame} tabindex="0" role="group" aria-label=${name}>
    <table class=${kind}>
      <${Heads} heads=${heads} />
      ${children}
    </table>
  </div>`;
}
