/**
 * What a browser under Trusted Types is asked to take from us; every other text that would become a script or markup
 * is refused by the browser. Browsers without Trusted Types take all as it is.
 */
const PLOTLY = '/vendor/plotly.min.js';

const policy = globalThis.trustedTypes?.createPolicy('grpolab', {
  createScriptURL: (address) => {
    if (address !== PLOTLY) throw new TypeError(`${address} is not a script of this page`);
    return address;
  },
  createHTML: (source) => source,
});

// To make a picture, Plotly empties an element by its markup and reads single entities so; that much may pass.
globalThis.trustedTypes?.createPolicy('default', {
  createHTML: (text) => (/^(&#?\w+;)?$/.test(text) ? text : null),
});

/** The address of the chart library. */
export const plotlyAddress = () => policy?.createScriptURL(PLOTLY) ?? PLOTLY;

/** An XML document apart from the page: nothing in it runs or is shown. @param {string} source @returns {Document} */
export const parseXml = (source) =>
  new DOMParser().parseFromString(policy?.createHTML(source) ?? source, 'application/xml');
