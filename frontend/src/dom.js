/** The single interface to the vendored libraries: `html` templates, hooks and signals. */
import { h, options, render, Fragment, Component, createRef } from '../vendor/preact.js';
import htm from '../vendor/htm.js';
import { makeVisible } from './lib/text/visible.js';

export { h, render, Fragment, Component, createRef };
export {
  useState,
  useEffect,
  useLayoutEffect,
  useRef,
  useMemo,
  useCallback,
  useId,
  useErrorBoundary,
} from '../vendor/preact-hooks.js';
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from '../vendor/signals.js';

/** Attributes that people read. `value` and `href` are not changed. */
const READABLE_ATTRIBUTES = /** @type {const} */ (['title', 'aria-label', 'alt', 'placeholder', 'label']);

/** Changes every text node and label of every page, because names, tags, messages and logs come from outside. */
const previousVnodeHook = options.vnode;
options.vnode = (vnode) => {
  const node = /** @type {{type: any, props: any}} a text node has its text as props */ (vnode);
  if (node.type === null) node.props = typeof node.props === 'string' ? makeVisible(node.props) : node.props;
  else if (typeof node.type === 'string') {
    for (const name of READABLE_ATTRIBUTES)
      if (typeof node.props[name] === 'string') node.props[name] = makeVisible(node.props[name]);
  }
  previousVnodeHook?.(vnode);
};

/** The tagged template that creates elements. Strings in it become text nodes, never markup. */
export const html = htm.bind(h);
