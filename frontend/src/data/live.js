/**
 * One stream of server-sent events for the whole page.
 *
 * `useLive(['run', 'points'], (type, data) => ...)` in a component, or `listen(...)` elsewhere. After a gap (hidden
 * tab, lost connection), the type `resync` tells every listener to load its data again, because the missed events are
 * unknown.
 */
import { signal, useEffect, useRef } from '../dom.js';
import { readProblem } from './api.js';

const TYPES = ['run', 'points', 'event', 'worker'];
/** The service's event after too many missed events. */
const RESET = 'reset';
const MAX_WAIT_MS = 15_000;

/**
 * `reason`: the service's reason if it has rejected the stream.
 * @type {import('../../vendor/signals.js').Signal<{state: 'connecting'|'live'|'paused'|'lost', since: number,
 *   reason?: string}>}
 */
export const connection = signal({ state: 'connecting', since: Date.now() });

/** @type {Set<{types: string[], callback: (type: string, data: any) => void}>} */
const listeners = new Set();
/** @type {EventSource | null} */
let source = null;
let lastId = '';
let retryTimer = 0;
let wait = 1000;
let hadGap = false;

const become = (/** @type {'connecting'|'live'|'paused'|'lost'} */ state) => {
  if (connection.peek().state !== state) connection.value = { state, since: Date.now() };
};

const tell = (/** @type {string} */ type, /** @type {any} */ data) => {
  for (const { types, callback } of listeners) if (type === 'resync' || types.includes(type)) callback(type, data);
};

/** Tells every listener to load its data again, because it may be outdated. */
export const resync = () => tell('resync', null);

function handleOpen() {
  wait = 1000;
  become('live');
  if (hadGap) resync();
  hadGap = false;
}

/** Requests the reason for a rejected stream in an ordinary call, because a stream does not contain the reason. */
async function loadReason(/** @type {string} */ url) {
  const abort = new AbortController();
  try {
    const response = await fetch(url, { signal: abort.signal });
    const reason = response.ok ? '' : (await readProblem(response)).detail;
    if (reason && connection.peek().state === 'lost') connection.value = { ...connection.peek(), reason };
  } catch {
    /* it does not answer: the notice says so */
  }
  abort.abort();
}

function handleError() {
  if (source?.readyState === EventSource.CLOSED) loadReason(source.url);
  close();
  hadGap = true;
  become('lost');
  retryTimer = setTimeout(openStream, wait);
  wait = Math.min(wait * 2, MAX_WAIT_MS);
}

function openStream() {
  close();
  if (document.hidden) return;
  source = new EventSource(`/api/v1/stream${lastId ? `?last_event_id=${encodeURIComponent(lastId)}` : ''}`);
  source.onopen = handleOpen;
  source.onerror = handleError;
  source.addEventListener(RESET, resync);
  for (const type of TYPES) {
    source.addEventListener(type, (message) => {
      lastId = message.lastEventId || lastId;
      tell(type, JSON.parse(message.data));
    });
  }
}

function close() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

function followVisibility() {
  if (!document.hidden) return void openStream();
  close();
  hadGap = true;
  become('paused');
}

/** Opens the stream, which pauses while the page is hidden. */
export function startLive() {
  document.addEventListener('visibilitychange', followVisibility);
  addEventListener('pagehide', close);
  openStream();
}

/** @param {string[]} types @param {(type: string, data: any) => void} callback @returns {() => void} stops listening */
export function listen(types, callback) {
  const listener = { types, callback };
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Listens for the life of a component and always calls the newest callback.
 * @param {string[]} types @param {(type: string, data: any) => void} callback
 */
export function useLive(types, callback) {
  const latestCallback = useRef(callback);
  latestCallback.current = callback;
  useEffect(() => listen(types, (type, data) => latestCallback.current(type, data)), [types.join()]);
}
