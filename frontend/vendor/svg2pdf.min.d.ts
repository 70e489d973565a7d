/** The script sets `window.svg2pdf`. */
export {};
