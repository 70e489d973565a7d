/** Calls of the HTTP API. Every failure is an `ApiError` that a page can show unchanged. */
import { address } from '../lib/url.js';

const ROOT = '/api/v1';

/**
 * @typedef {{path: string, message: string, position?: number}} FieldProblem `position`: in code points, if the value
 *   is a text
 */

/** A failed call, described by the server's problem document (RFC 9457). */
export class ApiError extends Error {
  /** @param {{status: number, title: string, detail?: string, errors?: FieldProblem[]}} problem */
  constructor({ status, title, detail = '', errors = [] }) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.errors = errors;
  }
}

const UNREACHABLE = {
  status: 0,
  title: 'The service is not responding',
  detail: 'No data is lost: runs keep training and recording. Check that the server process is still running.',
};

/** @typedef {Record<string, unknown>} Parameters Query parameters; empty ones are omitted */

/**
 * @param {string} method @param {string} path below /api/v1, or absolute with a leading `//`-less `/api`
 * @param {{params?: Parameters, body?: any, signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<any>} the parsed JSON, the text of other types, or undefined for an empty answer
 */
export async function request(method, path, { params, body, signal, headers = {} } = {}) {
  const isForm = body instanceof FormData;
  const response = await reachInTime(address(ROOT + path, params), {
    method,
    signal,
    headers: {
      Accept: 'application/json',
      ...(body === undefined || isForm ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    body: body === undefined || isForm ? body : JSON.stringify(body),
  });
  if (!response.ok) throw await readProblem(response);
  return readBody(response);
}

const MAX_TRIES = 5;
const LONGEST_PAUSE_SECONDS = 10;

/** Repeats a request after the delay in the service's answer 429, because the service has not processed the request. */
async function reachInTime(/** @type {string} */ url, /** @type {RequestInit} */ options) {
  for (let tries = 1; ; tries += 1) {
    const response = await reach(url, options);
    const seconds = Number(response.headers.get('retry-after'));
    if (response.status !== 429 || tries === MAX_TRIES || !(seconds <= LONGEST_PAUSE_SECONDS)) return response;
    await new Promise((resolve) => {
      setTimeout(resolve, seconds * 1000);
    });
  }
}

/**
 * Sends a file unchanged and reports the sent share, from 0 to 1.
 * @param {string} path @param {Blob} file
 * @param {{params?: Parameters, signal: AbortSignal, onProgress: (share: number) => void}} options
 * @returns {Promise<any>}
 */
export function upload(path, file, { params, signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest(); // fetch does not report how much was sent
    call.open('POST', address(ROOT + path, params));
    call.setRequestHeader('Accept', 'application/json');
    call.setRequestHeader('Content-Type', 'application/octet-stream');
    call.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 1);
    call.upload.onload = () => onProgress(1);
    call.onload = () => {
      const response = new Response(call.response, {
        status: call.status,
        statusText: call.statusText,
        headers: { 'Content-Type': call.getResponseHeader('content-type') ?? '' },
      });
      (response.ok
        ? readBody(response)
        : readProblem(response).then((error) => {
            throw error;
          })
      ).then(resolve, reject);
    };
    call.onerror = () => reject(new ApiError(UNREACHABLE));
    call.onabort = () => reject(new DOMException('stopped', 'AbortError'));
    signal.addEventListener('abort', () => call.abort());
    call.send(file);
  });
}

async function reach(/** @type {string} */ url, /** @type {RequestInit} */ options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error instanceof Error && error.name === 'AbortError') throw error;
    throw new ApiError(UNREACHABLE);
  }
}

async function readBody(/** @type {Response} */ response) {
  if (response.status === 204) return undefined;
  return response.headers.get('content-type')?.includes('json') ? response.json() : response.text();
}

/** @param {Response} response @returns {Promise<ApiError>} */
export async function readProblem(response) {
  const fallback = { status: response.status, title: response.statusText || `Error ${response.status}` };
  if (!response.headers.get('content-type')?.includes('json')) return new ApiError(fallback);
  const problem = await response.json();
  return new ApiError({ ...fallback, ...problem, status: response.status });
}

/**
 * @template {string} Path @param {Path} path @param {Parameters} [params] @param {AbortSignal} [signal]
 * @returns {Promise<Api.Answer<Path>>}
 */
export const get = (path, params, signal) => request('GET', path, { params, signal });
/**
 * @template {string} Path @param {Path} path @param {object} [body]
 * @param {{headers?: Record<string, string>, signal?: AbortSignal}} [options] @returns {Promise<Api.Made<Path>>}
 */
export const post = (path, body, options) => request('POST', path, { body, ...options });
/** @param {`/runs/${string}`} path @param {object} body @returns {Promise<Api.RunItem>} */
export const patch = (path, body) => request('PATCH', path, { body });
/** @param {'/views'} path @param {object} body @returns {Promise<Api.ViewItem>} */
export const put = (path, body) => request('PUT', path, { body });
/** @param {string} path @param {Parameters} [params] */
export const remove = (path, params) => request('DELETE', path, { params });

/**
 * Returns all items of a list, which is loaded page by page.
 * @template {'/runs' | '/rollouts'} Path @param {Path} path @param {Parameters} [params]
 * @param {{limit?: number, signal?: AbortSignal}} [options] @returns {Promise<Api.Answer<Path>['items']>}
 */
export async function getAll(path, params, { limit = Infinity, signal } = {}) {
  /** @type {any[]} */
  const items = [];
  /** @type {string | null | undefined} */
  let cursor;
  do {
    const page = await get(path, { ...params, cursor }, signal);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < limit);
  return items;
}

/**
 * Returns the address of a file of the API, for links and downloads.
 * @param {string} path @param {Parameters} [params]
 */
export const fileAddress = (path, params) => address(ROOT + path, params);
