/** The page's title in the browser's tab. */
import { useEffect } from '../dom.js';
import { makeVisible } from '../lib/text/visible.js';

/** Sets the page's title in the browser's tab. @param {string} title */
export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${makeVisible(title)} · GRPO Lab` : 'GRPO Lab';
  }, [title]);
}
