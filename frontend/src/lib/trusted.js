/**
 * What a browser under Trusted Types is asked to take from us; every other text that would become a script or markup
 * is refused by the browser. Browsers without Trusted Types take all as it is.
 */
const PLOTLY = '/vendor/plotly.min.js';
const VENDOR = new URL('../../vendor/', import.meta.url).pathname;
const SCRIPTS = [PLOTLY, `${VENDOR}jspdf.min.js`, `${VENDOR}svg2pdf.min.js`];

const policy = globalThis.trustedTypes?.createPolicy('grpolab', {
  createScriptURL: (address) => {
    if (!SCRIPTS.includes(address)) throw new TypeError(`${address} is not a script of this page`);
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

/** The address of a vendored script that is loaded on demand. @param {string} name */
export const vendorAddress = (name) => policy?.createScriptURL(`${VENDOR}${name}`) ?? `${VENDOR}${name}`;

/** An XML document apart from the page: nothing in it runs or is shown. @param {string} source @returns {Document} */
export const parseXml = (source) =>
  new DOMParser().parseFromString(policy?.createHTML(source) ?? source, 'application/xml');
