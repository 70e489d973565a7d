/** The page's name in the browser's tab. */
import { useEffect } from '../dom.js';
import { visible } from '../lib/text/visible.js';

/** Names the page in the browser's tab. @param {string} title */
export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${visible(title)} · GRPO Lab` : 'GRPO Lab';
  }, [title]);
}
