import assert from 'node:assert/strict';

const DIGITS = 1e-6;
const ALMOST_ZERO = 1e-12;

/** Asserts that lists of numbers are equal but for rounding: to six digits. */
export function assertClose(actual, expected, message = '') {
  assert.equal(actual.length, expected.length, message);
  for (const [i, number] of expected.entries()) {
    const tolerance = Math.max(DIGITS * Math.abs(number), ALMOST_ZERO);
    assert.ok(Math.abs(actual[i] - number) <= tolerance, `${message} ${actual[i]} is not ${number}`);
  }
}

/** The only item of a list, which must have one. */
export function only(items) {
  assert.equal(items.length, 1);
  return items[0];
}
