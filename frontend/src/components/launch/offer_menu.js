/** The menu of the form's offers: presets, recipes, datasets and benchmarks. */
import { html, useState } from '../../dom.js';
import { groupByFamily, filterOffers, splitSentences } from '../../lib/launch/offers.js';
import { Menu } from '../shared/overlay.js';

/** @typedef {import('../../lib/launch/offers.js').Offer} Offer */

/** Maximum number of offers of a menu without a filter. */
const FEW_OFFERS = 8;

/**
 * Offers by family, filtered by the typed text. Enter chooses the first offer.
 * @param {{label: string, offers: Offer[], align?: 'left' | 'right', onChoose: (offer: Offer) => void}} props
 */
export function OfferMenu({ label, offers, align = 'right', onChoose }) {
  const [text, setText] = useState('');
  const matches = filterOffers(offers, text);
  return html`<${Menu} label=${label} align=${align} quiet>
    ${(close) => {
      const choose = (offer) => {
        close();
        setText('');
        onChoose(offer);
      };
      return html`<div class="offers">
        ${
          offers.length > FEW_OFFERS &&
          html`<input
            class="field offer-filter"
            type="search"
            placeholder="Name, paper or method"
            aria-label="Filter presets"
            autofocus
            ref=${focusOnce}
            value=${text}
            onInput=${(event) => setText(event.target.value)}
            onKeyDown=${(event) => {
              if (event.key === 'Enter') {
                event.preventDefault();
                if (matches.length) choose(matches[0]);
              }
            }}
          />`
        }
        ${groupByFamily(matches).map(
          ([family, members]) => html`<div key=${family}>
            ${family && html`<div class="menu-title">${family}</div>`}
            ${members.map(
              (offer) => html`<button
                type="button"
                class="offer"
                key=${offer.name}
                title=${offer.note}
                onClick=${() => choose(offer)}
              >
                <span>
                  <strong>${offer.title}</strong> <code>${offer.name}</code>
                  ${
                    offer.source &&
                    html`
                      ${' '}
                      <span class="faint">${offer.source}</span>
                    `
                  }
                </span>
                <span class="quiet">${splitSentences(offer.note)[0]}</span>
              </button>`,
            )}
          </div>`,
        )}
        ${!matches.length && html`<p class="menu-title">No name, source or note contains “${text}”.</p>`}
      </div>`;
    }}
  <//>`;
}

const focusOnce = (/** @type {HTMLElement | null} */ element) => element?.focus({ preventScroll: true });
