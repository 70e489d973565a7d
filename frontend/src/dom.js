/** The one door to the vendored libraries: `html` templates, hooks and signals. */
import { h, render, Fragment, Component, createRef } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { h, render, Fragment, Component, createRef };
export {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId, useErrorBoundary,
} from '../vendor/preact-hooks.js';
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from '../vendor/signals.js';

/** Tagged template that makes elements. Strings in it become text nodes, never markup. */
export const html = htm.bind(h);
