/** A table of any length, of which only visible rows are rendered, all of one height. It can have group rows. */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../../dom.js';
import { Icon } from './icons.js';

const ROW_PX = 32;
const SPARE_ROWS = 8;

/**
 * @template T
 * @typedef {{key: string, title: any, width: string, cell: (row: T) => any, number?: boolean, sort?: string, hint?:
 *   string, label?: string}} Column
 *   `width` is a CSS grid track; `sort` is the server's name of the order
 */

/**
 * The row above a group of rows.
 * @template T
 * @typedef {{group: {name: string, rows: T[]}, key: string}} GroupHead
 */

/**
 * @template T
 * @param {{columns: Column<T>[], rows: (T | GroupHead<T>)[], rowKey: (row: T) => string, label: string,
 *   sort?: string, onSort?: (sort: string) => void, active?: string | null, onActivate?: (row: T) => void,
 *   isSelected?: (row: T) => boolean, onHover?: (row: T | null) => void,
 *   groupRow?: (group: GroupHead<T>['group']) => any, onEnd?: () => void}} props
 *   `sort` as in the API: `-created_at` is descending
 */
export function Grid({
  columns,
  rows,
  rowKey,
  label,
  sort,
  onSort,
  active = null,
  onActivate,
  isSelected = () => false,
  onHover,
  groupRow,
  onEnd,
}) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [slice, setSlice] = useState({ from: 0, to: 40 });
  const tracks = {
    gridTemplateColumns: columns.map(({ width }) => width).join(' '),
    minWidth: `${columns.reduce((sum, { width }) => sum + findLeastPx(width), 0)}px`,
  };

  const updateVisible = () => {
    if (!scroller.current) return;
    const { scrollTop, clientHeight } = scroller.current;
    const from = Math.max(0, Math.floor(scrollTop / ROW_PX) - SPARE_ROWS);
    const to = from + Math.ceil(clientHeight / ROW_PX) + 2 * SPARE_ROWS;
    setSlice((old) => (old.from === from && old.to === to ? old : { from, to }));
    if (to >= rows.length) onEnd?.();
  };
  useLayoutEffect(updateVisible, [rows.length]);
  useEffect(() => {
    const sizes = new ResizeObserver(updateVisible);
    if (scroller.current) sizes.observe(scroller.current);
    return () => sizes.disconnect();
  }, []);
  useEffect(() => {
    bringIntoView(
      scroller.current,
      rows.findIndex((row) => !isHead(row) && rowKey(row) === active),
    );
  }, [active]);

  return html`<div
    class="grid"
    ref=${scroller}
    onScroll=${updateVisible}
    onMouseLeave=${() => onHover?.(null)}
    role="table"
    aria-label=${label}
    aria-rowcount=${rows.length + 1}
    tabindex="0"
  >
    <div class="grid-head" role="row" style=${tracks}>
      ${columns.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}
    </div>
    <div style=${{ height: `${slice.from * ROW_PX}px` }}></div>
    ${rows.slice(slice.from, slice.to).map((row, i) =>
      isHead(row)
        ? html`<div class="grid-group" role="row" key=${`group ${row.key}`}>
          <span role="cell">${groupRow?.(row.group)}</span>
        </div>`
        : html`<div
          key=${rowKey(row)}
          class=${rowKey(row) === active ? 'grid-row is-active' : 'grid-row'}
          role="row"
          style=${tracks}
          data-key=${rowKey(row)}
          aria-rowindex=${slice.from + i + 2}
          aria-selected=${isSelected(row)}
          onClick=${() => onActivate?.(row)}
          onMouseEnter=${() => onHover?.(row)}
        >
          ${columns.map(
            ({
              key,
              number,
              cell,
            }) => html`<div key=${key} role="cell" class=${number ? 'grid-cell number' : 'grid-cell'}>
              ${cell(row)}
            </div>`,
          )}
        </div>`,
    )}
    <div style=${{ height: `${Math.max(0, rows.length - slice.to) * ROW_PX}px` }}></div>
  </div>`;
}

/** @param {{column: Column<any>, sort?: string, onSort?: (sort: string) => void}} props */
function Head({ column: { key, title, number, sort: word, hint, label }, sort, onSort }) {
  const direction = !word || !sort ? '' : sort === word ? 'ascending' : sort === `-${word}` ? 'descending' : '';
  const turn = () => word && onSort?.(direction === 'descending' ? word : `-${word}`);
  return html`<div
    class=${number ? 'grid-cell number' : 'grid-cell'}
    role="columnheader"
    aria-sort=${direction || undefined}
    aria-label=${label}
    title=${hint}
  >
    ${
      word && onSort
        ? html`<button data-sort=${key} onClick=${turn}>
          ${title}
          ${direction && html`<${Icon} name=${direction === 'ascending' ? 'up' : 'down'} size=${12} />`}
        </button>`
        : title
    }
  </div>`;
}

/** Returns the minimum width of a track: 120 for `minmax(120px, 1fr)` and `120px`. */
const findLeastPx = (/** @type {string} */ track) => Number(/(\d+)px/.exec(track)?.[1] ?? 0);

/** @param {HTMLElement | null} scroller @param {number} index */
function bringIntoView(scroller, index) {
  if (index < 0 || !scroller) return;
  const top = index * ROW_PX;
  const view = scroller.clientHeight - 2 * ROW_PX;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top > scroller.scrollTop + view) scroller.scrollTop = top - view;
}

/**
 * Returns rows with a group row before each group, in order of first appearance.
 * @template T
 * @param {T[]} rows
 * @param {(row: T) => string} findName
 * @returns {(T | GroupHead<T>)[]}
 */
export function withGroups(rows, findName) {
  /** @type {Map<string, T[]>} */
  const groups = new Map();
  for (const row of rows) groups.set(findName(row), [...(groups.get(findName(row)) ?? []), row]);
  return [...groups].flatMap(([name, inside]) => [{ group: { name, rows: inside }, key: name }, ...inside]);
}

/**
 * Returns whether a row is a group row.
 * @template T
 * @param {T | GroupHead<T>} row
 * @returns {row is GroupHead<T>}
 */
export const isHead = (row) => typeof row === 'object' && row !== null && 'group' in row;
