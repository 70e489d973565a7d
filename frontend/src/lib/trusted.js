/**
 * The policies of this application for Trusted Types. The browser rejects all other text that would become a script or
 * markup. Browsers without Trusted Types accept all text.
 */
const PLOTLY = '/vendor/plotly.min.js';

const policy = globalThis.trustedTypes?.createPolicy('grpolab', {
  createScriptURL: (address) => {
    if (address !== PLOTLY) throw new TypeError(`${address} is not a script of this page`);
    return address;
  },
  createHTML: (source) => source,
});

// Plotly clears an element and decodes single entities through markup when it creates an image. Only that is allowed.
globalThis.trustedTypes?.createPolicy('default', {
  createHTML: (text) => (/^(&#?\w+;)?$/.test(text) ? text : null),
});

/** Returns the address of the chart library. */
export const plotlyAddress = () => policy?.createScriptURL(PLOTLY) ?? PLOTLY;

/**
 * Returns a separate XML document, which is never shown and whose scripts never run.
 * @param {string} source @returns {Document}
 */
export const parseXml = (source) =>
  new DOMParser().parseFromString(policy?.createHTML(source) ?? source, 'application/xml');
