/** Validates each variant with the service while the form is being edited. */
import { useEffect, useRef, useState } from '../../dom.js';
import { ApiError, post } from '../../data/api.js';
import { makeContentKey } from '../../lib/launch/form.js';

const PAUSE_MS = 250;
const MAX_KEPT = 200;
/** How long an answer is valid. Files and models of a config may appear and disappear. */
const FRESH_MS = 30_000;
/** Interval after which a rejected variant is checked again while it is on the page. */
const RECHECK_MS = 5_000;

/**
 * @typedef {Api.Validated} Valid
 * @typedef {{checking: boolean, valid: Valid | null, errors: {path: string, message: string}[], problem:
 *   Error | null}} Verdict
 *   `valid` is the newest accepted answer, which stays until the next one arrives
 */

/** @type {Verdict} */
const UNKNOWN = { checking: true, valid: null, errors: [], problem: null };

/** @type {Map<string, {verdict: Verdict, answeredAt: number}>} answers by content */
const answers = new Map();

/**
 * Returns whether an answer can be reused. A rejected config is always checked again, because a file or model may
 * appear.
 */
const isFresh = (/** @type {{verdict: Verdict, answeredAt: number} | undefined} */ answer) =>
  answer !== undefined && answer.verdict.valid !== null && Date.now() - answer.answeredAt < FRESH_MS;

/** @param {object} body @param {string} key @param {AbortSignal} signal */
async function requestVerdict(body, key, signal) {
  try {
    keep(key, {
      checking: false,
      valid: await post('/validate', body, { signal }),
      errors: [],
      problem: null,
    });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError && error.status === 422)
      keep(key, {
        checking: false,
        valid: null,
        errors: error.errors.length ? error.errors : [{ path: '', message: error.message }],
        problem: null,
      });
    else keep(key, { checking: false, valid: null, errors: [], problem: /** @type {Error} */ (error) });
  }
}

/** @param {string} key @param {Verdict} verdict */
function keep(key, verdict) {
  answers.delete(key);
  answers.set(key, { verdict, answeredAt: Date.now() });
  if (answers.size > MAX_KEPT) answers.delete([...answers.keys()][0]);
}

/**
 * @param {object} base @param {{name: string}[]} variants @param {number} seed
 * @param {{run: Api.RunItem, step: number} | null} fork
 * @returns {Verdict[]} one verdict for each variant
 */
export function useVerdicts(base, variants, seed, fork) {
  const point = fork && { fork: { run: fork.run.id, step: fork.step } };
  const bodies = variants.map((variant) => ({ base, variant, seed, ...point }));
  const keys = bodies.map(makeContentKey);
  const [, redraw] = useState(0);
  const last = useRef(/** @type {Map<string, Verdict>} */ (new Map()));

  useEffect(() => {
    const abort = new AbortController();
    const askedKeys = new Set(); // validating a large dataset may take longer than the time to the next request
    const askAll = () =>
      bodies.forEach((body, i) => {
        if (document.hidden || askedKeys.has(keys[i]) || isFresh(answers.get(keys[i]))) return;
        askedKeys.add(keys[i]);
        requestVerdict(body, keys[i], abort.signal).then(() => {
          askedKeys.delete(keys[i]);
          if (!abort.signal.aborted) redraw((n) => n + 1);
        });
      });
    const timer = setTimeout(askAll, PAUSE_MS);
    const interval = setInterval(askAll, RECHECK_MS);
    document.addEventListener('visibilitychange', askAll);
    return () => {
      clearTimeout(timer);
      clearInterval(interval);
      document.removeEventListener('visibilitychange', askAll);
      abort.abort();
    };
  }, [keys.join()]);

  const verdicts = variants.map(({ name }, i) => {
    const lastVerdict = last.current.get(name);
    const verdict = answers.get(keys[i])?.verdict ?? { ...UNKNOWN, errors: lastVerdict?.errors ?? [] };
    return { ...verdict, valid: verdict.valid ?? lastVerdict?.valid ?? null };
  });
  last.current = new Map(variants.map(({ name }, i) => [name, verdicts[i]]));
  return verdicts;
}
