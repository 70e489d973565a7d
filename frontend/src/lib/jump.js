/** Ranking of what the quick jump finds. Pure. */

/**
 * A place to jump to; `detail` stands behind its name, `address` or `run` leads there.
 * @typedef {{key: string, name: string, detail?: string, address?: string, run?: () => void}} Place
 * @typedef {{title: string, places: Place[]}} Section
 */

/** @param {string} text */
export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/**
 * How well a name fits what was typed: 4 it is the same, 3 it begins with it or has it as a part, 2 a part begins with
 * it, 1 it contains all words, 0 it does not.
 * @param {string} name @param {string} typed
 */
export function score(name, typed) {
  const lower = name.toLowerCase();
  const text = wordsOf(typed).join(' ');
  if (!text) return 1;
  if (lower === text) return 4;
  const parts = lower.split(/[\s/.-]+/);
  if (lower.startsWith(text) || parts.includes(text)) return 3;
  if (parts.some((part) => part.startsWith(text))) return 2;
  return wordsOf(typed).every((word) => lower.includes(word)) ? 1 : 0;
}

/**
 * The best places by name; those that fit equally well keep their order.
 * @param {Place[]} places @param {string} typed @param {number} limit
 */
export const best = (places, typed, limit) =>
  places
    .map((place) => ({ place, fit: score(place.name, typed) }))
    .filter(({ fit }) => fit > 0)
    .sort((a, b) => b.fit - a.fit)
    .slice(0, limit)
    .map(({ place }) => place);

/**
 * Sections with places, those first whose best name fits best.
 * @param {Section[]} sections @param {string} typed
 */
export const inOrder = (sections, typed) =>
  sections
    .filter(({ places }) => places.length)
    .map((section) => ({ section, fit: Math.max(...section.places.map(({ name }) => score(name, typed))) }))
    .sort((a, b) => b.fit - a.fit)
    .map(({ section }) => section);

const MAX_WORDS = 8;

/** What was typed as a query of the list of runs, in which every word is a text. @param {string} typed */
export const runQuery = (typed) =>
  typed
    .split(/\s+/)
    .filter(Boolean)
    .slice(0, MAX_WORDS)
    .map((word) => `"${word.replace(/["\\]/g, '\\$&')}"`)
    .join(' ');
