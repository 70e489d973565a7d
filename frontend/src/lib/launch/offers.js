/** Presets and recipes as offers of menus. Pure. */

/** @typedef {Api.Offer} Offer */

/**
 * Returns offers whose name, title, family, source or note contains every typed word. Matches in names come first.
 * @param {Offer[]} offers
 * @param {string} text
 */
export function filterOffers(offers, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (/** @type {string[]} */ parts) => words.every((word) => parts.join(' ').toLowerCase().includes(word));
  const nameMatches = offers.filter(({ name, title }) => has([name, title]));
  const otherMatches = offers.filter(
    (offer) =>
      !nameMatches.includes(offer) &&
      has([offer.name, offer.title, offer.family ?? '', offer.source ?? '', offer.note]),
  );
  return [...nameMatches, ...otherMatches];
}

/**
 * Returns offers by family, in order of appearance.
 * @param {Offer[]} offers
 * @returns {[string, Offer[]][]}
 */
export function groupByFamily(offers) {
  const families = new Map();
  for (const offer of offers) families.set(offer.family ?? '', [...(families.get(offer.family ?? '') ?? []), offer]);
  return [...families];
}

/** Returns the sentences of a note, of which the first is the description. @param {string} note */
export const splitSentences = (note) => note.split(/(?<!\bDr\.)(?<=\.)\s+(?=[A-Z])/);
