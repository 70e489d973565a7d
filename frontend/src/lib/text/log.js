/** Renders a program's output like a terminal: without colours, and with lines rewritten by carriage returns. */

// biome-ignore lint/suspicious/noControlCharactersInRegex: terminals are controlled by them
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** @param {string} text */
export const terminalText = (text) =>
  text.replace(ANSI, '').replaceAll('\r\n', '\n').split('\n').map(findLastWritten).join('\n');

/** Returns the final text of a line after all carriage returns. @param {string} line */
const findLastWritten = (line) => (line.includes('\r') ? line.replace(/\r+$/, '').split('\r').at(-1) : line);
