/** The ranking of places that the quick jump finds. Pure. */

/**
 * A place to jump to. `detail` follows its name, and `address` or `run` opens it.
 * @typedef {{key: string, name: string, detail?: string, address?: string, run?: () => void}} Place
 * @typedef {{title: string, places: Place[], isLast?: boolean}} Section
 */

/** @param {string} text */
export const splitWords = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/**
 * Returns how well a name matches the typed text: 4 if equal, 3 if it begins with the text or has it as a part, 2 if a
 * part begins with it, 1 if it contains all words, else 0.
 * @param {string} name @param {string} typedText
 */
export function scoreName(name, typedText) {
  const lowerName = name.toLowerCase();
  const text = splitWords(typedText).join(' ');
  if (!text) return 1;
  if (lowerName === text) return 4;
  if (lowerName.startsWith(text) || lowerName.split(/[\s/.-]+/).includes(text)) return 3;
  if (lowerName.split(/[\s/._-]+/).some((part) => part.startsWith(text))) return 2;
  return splitWords(typedText).every((word) => lowerName.includes(word)) ? 1 : 0;
}

/**
 * Returns the best matches by name. Equal matches keep their order.
 * @param {Place[]} places @param {string} typedText @param {number} limit
 */
export const findBest = (places, typedText, limit) =>
  places
    .map((place) => ({ place, fit: scoreName(place.name, typedText) }))
    .filter(({ fit }) => fit > 0)
    .sort((a, b) => b.fit - a.fit)
    .slice(0, limit)
    .map(({ place }) => place);

/**
 * Returns sections with places, sorted by their best match. Those with `isLast` come last: help has a page for every word.
 * @param {Section[]} sections @param {string} typedText
 */
export const sortSections = (sections, typedText) =>
  sections
    .filter(({ places }) => places.length)
    .map((section) => ({ section, fit: Math.max(...section.places.map(({ name }) => scoreName(name, typedText))) }))
    .sort((a, b) => Number(a.section.isLast ?? false) - Number(b.section.isLast ?? false) || b.fit - a.fit)
    .map(({ section }) => section);

const MAX_WORDS = 8;

/** Returns the typed text as a query of the list of runs, with every word quoted. @param {string} typedText */
export const runQuery = (typedText) =>
  typedText
    .split(/\s+/)
    .filter(Boolean)
    .slice(0, MAX_WORDS)
    .map((word) => `"${word.replace(/["\\]/g, '\\$&')}"`)
    .join(' ');
