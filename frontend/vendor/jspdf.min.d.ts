/** The script sets `window.jspdf`. */
export {};
