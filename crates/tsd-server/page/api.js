/** @file Calls of the daemon's API. */

/** Why a call failed, in the words of the daemon. */
export class ApiFailure extends Error {
  /**
   * @param {number} status HTTP status; 0 without a response
   * @param {string} message
   * @param {string} details
   */
  constructor(status, message, details) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

/** @typedef {{ method?: string, body?: unknown, signal?: AbortSignal, headers?: Record<string, string> }} CallOptions */

/**
 * Sends a request and returns the text of its response.
 *
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<string>}
 */
export async function callText(path, options = {}) {
  const { method = options.body === undefined ? "GET" : "POST", body, signal } = options;
  /** @type {RequestInit} */
  const init = { method, headers: { ...options.headers }, cache: "no-store" };
  if (signal) {
    init.signal = signal;
  }
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...options.headers, "Content-Type": "application/json" };
  }
  /** @type {Response} */
  let response;
  /** @type {string} */
  let text;
  try {
    // A page that was opened with credentials in its address may not request such addresses.
    response = await fetch(new URL(path, location.origin), init);
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") {
      throw error;
    }
    throw new ApiFailure(0, "The daemon does not respond", error instanceof Error ? error.message : "");
  }
  // 304: the stored annotation already has these values.
  if (!response.ok && response.status !== 304) {
    throw failureOf(response.status, text);
  }
  return text;
}

/**
 * @param {number} status
 * @param {string} text
 * @returns {ApiFailure}
 */
function failureOf(status, text) {
  try {
    const { error } = /** @type {{ error?: { message?: unknown, details?: unknown, trace?: unknown } }} */ (JSON.parse(text));
    if (error) {
      const details = error.details ?? "";
      return new ApiFailure(status, String(error.message ?? `Status ${status}`), String(details));
    }
  } catch {
    // The text is not JSON and is shown as it is.
  }
  return new ApiFailure(status, `Status ${status}`, text.slice(0, 2000));
}

/**
 * Sends a request and returns the JSON of its response; null for an empty response.
 *
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<unknown>}
 */
export async function call(path, options) {
  const text = await callText(path, options);
  return text === "" ? null : JSON.parse(text);
}

/** Maximum names of a completion. */
const MOST_NAMES = 50;

/**
 * Returns names that begin with a text.
 *
 * @param {"metrics" | "tagk" | "tagv"} type
 * @param {string} prefix
 * @param {number} [max]
 * @returns {Promise<string[]>}
 */
export async function suggest(type, prefix, max = MOST_NAMES) {
  const names = await call(`/api/suggest?type=${type}&max=${max}&q=${encodeURIComponent(prefix)}`);
  return Array.isArray(names) ? names.map(String) : [];
}

/**
 * @typedef {object} FoundNames
 * @property {string[]} names the first names
 * @property {number} matching number of all names that were found
 * @property {boolean} complete false if the search ended before it had read all names
 */

/**
 * Returns names that contain a text, in any case.
 *
 * @param {"metrics" | "tagk" | "tagv"} type
 * @param {string} part
 * @param {number} max
 * @returns {Promise<FoundNames>}
 */
export async function searchNames(type, part, max) {
  return /** @type {FoundNames} */ (await call(`/api/suggest?type=${type}&match=any&max=${max}&q=${encodeURIComponent(part)}`));
}

/**
 * Returns metrics that contain a text. Those that begin with it come first.
 *
 * @param {string} part
 * @returns {Promise<string[]>}
 */
export async function metricsWith(part) {
  const begin = await suggest("metrics", part);
  if (part === "" || begin.length >= MOST_NAMES) {
    return begin;
  }
  const { names } = await searchNames("metrics", part, MOST_NAMES);
  return [...new Set([...begin, ...names])];
}

/** @typedef {{ complete: boolean, tags: Map<string, Set<string>> }} KnownTags */

/** Maximum series of a metric to look up for completion. */
const MOST_SERIES = 2000;

/** Maximum metrics whose tags are cached. */
const MOST_METRICS = 20;

/** @type {Map<string, Promise<KnownTags>>} */
const known = new Map();

/**
 * Returns the tag keys of a metric with their values, from its first series.
 *
 * @param {string} metric
 * @returns {Promise<KnownTags>}
 */
export function tagsOf(metric) {
  const before = known.get(metric);
  if (before) {
    return before;
  }
  const found = lookUp(metric);
  found.catch(() => known.delete(metric));
  known.set(metric, found);
  // Evicts the oldest entry: the map keeps the order of insertion.
  for (const oldest of known.keys()) {
    if (known.size <= MOST_METRICS) {
      break;
    }
    known.delete(oldest);
  }
  // Entries expire, since new series appear.
  setTimeout(() => known.delete(metric), 60_000);
  return found;
}

/**
 * @param {string} metric
 * @returns {Promise<KnownTags>}
 */
async function lookUp(metric) {
  const body = { metric, limit: MOST_SERIES, useMeta: false };
  const found = /** @type {{ results?: { tags?: Record<string, string> }[] } | null} */ (await call("/api/search/lookup", { body }));
  /** @type {Map<string, Set<string>>} */
  const tags = new Map();
  const results = found?.results ?? [];
  for (const { tags: pairs } of results) {
    for (const [key, value] of Object.entries(pairs ?? {})) {
      const values = tags.get(key) ?? new Set();
      values.add(value);
      tags.set(key, values);
    }
  }
  return { complete: results.length < MOST_SERIES, tags };
}
