import { useEffect } from './dom.js';

/** Names the page in the browser's tab. @param {string} title */
export function useTitle(title) {
  useEffect(() => { document.title = title ? `${title} · GRPO Lab` : 'GRPO Lab'; }, [title]);
}
