/** Presets and recipes as they are offered. Pure. */

/** @typedef {Api.Offer} Offer */

/**
 * Offers whose name, title, family, source or note holds every typed word; those named so come first.
 * @param {Offer[]} offers
 * @param {string} text
 */
export function matching(offers, text) {
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
 * Offers under the families they belong to, in order of appearance.
 * @param {Offer[]} offers
 * @returns {[string, Offer[]][]}
 */
export function byFamily(offers) {
  const families = new Map();
  for (const offer of offers) families.set(offer.family ?? '', [...(families.get(offer.family ?? '') ?? []), offer]);
  return [...families];
}

/** A note as its sentences: the first says what it is. @param {string} note */
export const sentences = (note) => note.split(/(?<!\bDr\.)(?<=\.)\s+(?=[A-Z])/);
