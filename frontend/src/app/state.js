/** State that all pages share: theme, colours of runs, workers, unsent files, metric catalog and messages. */
import { computed, effect, signal, useEffect } from '../dom.js';
import { get } from '../data/api.js';
import { listen, resync } from '../data/live.js';
import { makeLooks, makeShadedLooks, chooseSlots } from '../lib/colours.js';

/** @typedef {import('../data/api.js').ApiError} ApiError */

const readStored = (/** @type {string} */ key, /** @type {unknown} */ fallback) =>
  JSON.parse(localStorage.getItem(`grpolab.${key}`) ?? JSON.stringify(fallback));
const store = (/** @type {string} */ key, /** @type {unknown} */ value) =>
  localStorage.setItem(`grpolab.${key}`, JSON.stringify(value));

/** @typedef {'light'|'dark'} Theme */

/** Chosen theme; 'auto' follows the system. It is stored as plain text because first_paint.js reads it too. */
export const themeChoice = signal(/** @type {Theme | 'auto'} */ (localStorage.getItem('grpolab.theme') ?? 'auto'));
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');
const systemTheme = signal(/** @type {Theme} */ (systemIsDark.matches ? 'dark' : 'light'));
systemIsDark.addEventListener('change', () => {
  systemTheme.value = systemIsDark.matches ? 'dark' : 'light';
});

/** @type {import('../../vendor/signals.js').ReadonlySignal<Theme>} */
export const theme = computed(() => (themeChoice.value === 'auto' ? systemTheme.value : themeChoice.value));

effect(() => {
  const choice = themeChoice.value;
  localStorage.setItem('grpolab.theme', choice);
  if (choice === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
});

/**
 * Returns the looks of groups. A group has the colour of its first run, unless another group has it already.
 * @param {{name: string, runs: Pick<Api.RunItem, 'colour'>[]}[]} groups
 */
export function groupLooks(groups) {
  const slots = chooseSlots(groups.map(({ runs }) => runs[0].colour));
  return makeLooks(
    groups.map(({ name }, i) => ({ key: name, slot: slots[i] })),
    theme.value,
  );
}

/**
 * Returns the looks of single runs, as shades of their group's colour.
 * @param {{name: string, runs: Pick<Api.RunItem, 'id' | 'colour'>[]}[]} groups
 */
export function makeRelatedLooks(groups) {
  const looks = groupLooks(groups);
  const shadedGroups = groups.map(({ name, runs }) => ({
    look: /** @type {import('../lib/colours.js').Look} */ (looks.get(name)),
    keys: runs.map(({ id }) => id),
  }));
  return makeShadedLooks(shadedGroups, theme.value);
}

/** Returns the look of a single run. @param {Api.RunItem} run @returns {import('../lib/colours.js').Look} */
export const runLook = (run) => [...groupLooks([{ name: '', runs: [run] }]).values()][0];

const phone = matchMedia('(max-width: 720px)');

/** True if the window is as narrow as a phone's. */
export const isNarrow = signal(phone.matches);
phone.addEventListener('change', () => {
  isNarrow.value = phone.matches;
});

/** Names of files that are chosen on the launch form but not uploaded yet. */
export const unsentFiles = signal(/** @type {string[]} */ ([]));

/** @type {import('../../vendor/signals.js').Signal<{items: Api.WorkerSlot[], error: ApiError | null,
 *   loaded: boolean}>} */
export const workers = signal({ items: [], error: null, loaded: false });

async function loadWorkers() {
  try {
    workers.value = { items: (await get('/workers')).items, error: null, loaded: true };
  } catch (error) {
    workers.value = { ...workers.peek(), error: /** @type {ApiError} */ (error), loaded: true };
  }
}

/** Keeps the list of workers up to date for the life of the page. */
export function startWorkers() {
  loadWorkers();
  let timer = 0;
  listen(['worker'], () => {
    clearTimeout(timer);
    timer = setTimeout(loadWorkers, 300);
  });
  setInterval(() => {
    if (!document.hidden) loadWorkers();
  }, 15_000);
}

/**
 * The role with which this page is logged in. Until the service has reported it, the role of the last visit.
 * @type {import('../../vendor/signals.js').Signal<Api.Role>}
 */
export const role = signal(readStored('role', 'operator'));

/** True if the role may change anything. A viewer may not, and sees no buttons for changes. */
export const mayChange = computed(() => role.value === 'operator');

/**
 * The id of this browser's session. It is null until it is known, and on a page that was opened with a token.
 * @type {import('../../vendor/signals.js').Signal<string | null>}
 */
export const session = signal(null);

export async function loadRole() {
  const answer = await get('/session');
  role.value = answer.role;
  session.value = answer.session;
  store('role', role.value);
}

/**
 * State of database, broker and disk, and the runs that wait for them. It is null until it is known.
 * @type {import('../../vendor/signals.js').Signal<Api.ServiceStatus | null>}
 */
export const status = signal(null);
const STATUS_EVERY = 4000;

async function loadStatus() {
  try {
    const newStatus = await get('/status');
    const oldStatus = status.peek();
    const isBack = newStatus.database.state === 'ok' && oldStatus !== null && oldStatus.database.state !== 'ok';
    status.value = newStatus;
    if (isBack) resync();
  } catch {
    status.value = null; // the service does not answer, which the live connection's notice reports
  }
}

/** Keeps the state of the service up to date for the life of the page. */
export function startStatus() {
  loadStatus();
  setInterval(() => {
    if (!document.hidden) loadStatus();
  }, STATUS_EVERY);
}

/**
 * The metric catalog by name, with unit, section, meaning and healthy band. It is empty until it is loaded.
 * @type {import('../../vendor/signals.js').Signal<Map<string, Api.MetricEntry>>}
 */
export const catalog = signal(new Map());

export async function loadCatalog() {
  const { items } = await get('/metric-catalog');
  catalog.value = new Map(items.map((metric) => [metric.name, metric]));
}

/**
 * Returns the catalog's entry for a metric. Members of a family (`reward/<name>/mean`) share an entry.
 * @param {string} metric
 */
export function findMetricInfo(metric) {
  const exact = catalog.value.get(metric);
  if (exact) return exact;
  for (const [name, entry] of catalog.value) {
    if (
      name.includes('<') &&
      new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/<[^>]+>/g, '[^/]+')}$`).test(metric)
    )
      return entry;
  }
  return undefined;
}

/** @typedef {{metrics: string[], open: (metric: string) => void}} PanelsOfPage `open` shows the panel of a metric */

/**
 * The panels that the page can show, for the quick jump, or null on a page without curves.
 * @type {import('../../vendor/signals.js').Signal<PanelsOfPage | null>}
 */
export const panelsOfPage = signal(null);

/**
 * Adds the panels of a page to the quick jump for the life of a component.
 * @param {string[]} metrics @param {(metric: string) => void} open
 */
export function useJumpToPanels(metrics, open) {
  useEffect(() => {
    const panels = { metrics, open };
    panelsOfPage.value = panels;
    return () => {
      if (panelsOfPage.peek() === panels) panelsOfPage.value = null;
    };
  });
}

/** @typedef {{id: number, text: string, tone: 'info'|'error', action?: {label: string, run: () => void}}} Toast */
/** @type {import('../../vendor/signals.js').Signal<Toast[]>} */
export const toasts = signal([]);
let nextToast = 1;

/**
 * Shows a short message. An error, or a message with an action, stays longer.
 * @param {string} text
 * @param {Partial<Toast>} [options]
 */
export function say(text, { tone = 'info', action } = {}) {
  const id = nextToast++;
  toasts.value = [...toasts.peek().slice(-3), { id, text, tone, action }];
  setTimeout(() => dismiss(id), action || tone === 'error' ? 9000 : 3500);
}

/** @param {number} id */
export const dismiss = (id) => {
  toasts.value = toasts.peek().filter((toast) => toast.id !== id);
};

/** Shows the message of an error. @param {unknown} error */
export const sayError = (error) => say(error instanceof Error ? error.message : String(error), { tone: 'error' });
