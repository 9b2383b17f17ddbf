/** @file Requests of a view: bodies of `/api/query`, `/api/query/exp` and `/api/query/gexp`. */

import { isComplete, letter } from "./view.js";
import { instantText, parseTime } from "./time.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").SubQuery} SubQuery */

/** @typedef {{ startMs: number, endMs: number, zone: string }} Range */

/** @typedef {{ kind: "query" | "exp" | "gexp", path: string, body: object }} QueryRequest */

/** Intervals that `auto` chooses from, with their lengths in seconds. */
const INTERVALS = /** @type {const} */ ([
  [1, "1s"], [2, "2s"], [5, "5s"], [10, "10s"], [15, "15s"], [30, "30s"], [60, "1m"], [120, "2m"], [300, "5m"], [600, "10m"],
  [900, "15m"], [1800, "30m"], [3600, "1h"], [7200, "2h"], [10800, "3h"], [21600, "6h"], [43200, "12h"], [86400, "1d"],
  [604800, "7d"], [2592000, "30d"],
]);

/**
 * Returns the interval for `auto`: about one point per two pixels; `none` if that is less than a second.
 *
 * @param {number} rangeMs
 * @param {number} width pixels of the plot
 * @returns {string}
 */
export function autoInterval(rangeMs, width) {
  const wanted = rangeMs / 1000 / Math.max(50, width / 2);
  if (wanted < 1) {
    return "none";
  }
  return (INTERVALS.find(([seconds]) => seconds >= wanted) ?? INTERVALS[INTERVALS.length - 1] ?? [0, "30d"])[1];
}

/**
 * Returns the time range of a view, or an error text for an invalid time.
 *
 * @param {View} view
 * @param {number} now
 * @returns {Range | string}
 */
export function rangeOf(view, now) {
  const { zone } = view;
  const startMs = parseTime(view.start, zone, now);
  const endMs = view.end === "" ? now : parseTime(view.end, zone, now);
  if (startMs === null) {
    return `This is no time: ${view.start}`;
  }
  if (endMs === null) {
    return `This is no time: ${view.end}`;
  }
  if (endMs <= startMs) {
    return "The end is not after the start";
  }
  return { startMs, endMs, zone };
}

/**
 * Returns the requests of a view.
 *
 * @param {View} view
 * @param {Range} range
 * @param {number} width pixels of the plot
 * @returns {QueryRequest[]}
 */
export function requestsOf(view, range, width) {
  // Times are instants, so that several requests of a view have the same range.
  const times = { start: instantText(range.startMs), end: instantText(range.endMs), timezone: range.zone };
  const interval = autoInterval(range.endMs - range.startMs, width);
  /** @type {QueryRequest[]} */
  const requests = [];
  const subs = view.subs.filter((sub) => isComplete(sub) && !sub.off);
  if (subs.length) {
    requests.push({ kind: "query", path: "/api/query?arrays", body: plainBody(view, subs, times, interval) });
  }
  const arithmetic = view.expressions.filter((expression) => expression.kind === "exp" && expression.text);
  if (arithmetic.length) {
    requests.push({ kind: "exp", path: "/api/query/exp", body: expBody(view, times, interval) });
  }
  const functions = view.expressions.filter((expression) => expression.kind === "gexp" && expression.text);
  if (functions.length) {
    const exp = functions.map((expression) => expression.text.replace(/\bauto-(\w+)(-\w+)?:/g, (_, fn, fill) =>
      interval === "none" ? "" : `${interval}-${String(fn)}${String(fill ?? "")}:`,
    ));
    requests.push({
      kind: "gexp",
      path: "/api/query/gexp?arrays",
      body: { ...times, msResolution: true, showQuery: true, exp },
    });
  }
  return requests;
}

/**
 * @param {View} view
 * @param {SubQuery[]} subs
 * @param {{ start: string, end: string, timezone: string }} times
 * @param {string} interval
 * @returns {object}
 */
function plainBody(view, subs, times, interval) {
  return {
    ...times,
    msResolution: true,
    showQuery: true,
    showTSUIDs: true,
    showSummary: true,
    globalAnnotations: view.globals,
    queries: subs.map((sub) => subBody(sub, interval)),
  };
}

/**
 * @param {SubQuery} sub
 * @param {string} auto the interval for `auto`
 * @returns {object}
 */
export function subBody(sub, auto) {
  /** @type {Record<string, unknown>} */
  const body = { aggregator: sub.aggregator };
  if (sub.tsuids) {
    body.tsuids = sub.tsuids.split(/[\s,]+/).filter(Boolean);
  } else {
    body.metric = sub.metric;
    body.filters = sub.filters.filter((filter) => filter.tagk);
  }
  const interval = sub.interval === "auto" ? auto : sub.interval;
  if (interval && interval !== "none") {
    body.downsample = [interval, sub.fn, ...(sub.fill === "none" ? [] : [sub.fill])].join("-");
  }
  if (sub.rate) {
    body.rate = true;
    body.rateOptions = rateBody(sub);
  }
  const values = sub.valueFilters.filter((filter) => filter.filter);
  if (values.length) {
    body.valueFilters = values;
  }
  if (sub.explicitTags) {
    body.explicitTags = true;
  }
  if (sub.preAggregate) {
    body.preAggregate = true;
  }
  if (sub.rollup) {
    body.rollupUsage = sub.rollup;
  }
  if (sub.percentiles) {
    // The daemon rejects texts that are not numbers.
    body.percentiles = sub.percentiles
      .split(/[\s,]+/)
      .filter(Boolean)
      .map((text) => (Number.isFinite(Number(text)) ? Number(text) : text));
  }
  if (sub.showBuckets) {
    body.showHistogramBuckets = true;
  }
  return body;
}

/**
 * Builds the rate options. Numbers stay texts, since a counter's maximum may exceed the range of JavaScript's numbers.
 *
 * @param {SubQuery} sub
 * @returns {object}
 */
function rateBody(sub) {
  /** @type {Record<string, unknown>} */
  const body = { counter: sub.counter, dropResets: sub.dropResets };
  if (sub.counterMax) {
    body.counterMax = sub.counterMax;
  }
  if (sub.resetValue) {
    body.resetValue = sub.resetValue;
  }
  return body;
}

/**
 * Builds a request with expressions. All metrics share the downsampling and the rate of the first sub query.
 *
 * @param {View} view
 * @param {{ start: string, end: string, timezone: string }} times
 * @param {string} auto
 * @returns {object}
 */
function expBody(view, times, auto) {
  const named = view.subs.map((sub, index) => ({ sub, id: letter(index) })).filter(({ sub }) => sub.metric);
  const arithmetic = view.expressions.filter((expression) => expression.kind === "exp" && expression.text);
  const used = named.filter(({ id }) => arithmetic.some(({ text }) => new RegExp(`\\b${id}\\b`).test(text)));
  const first = used[0]?.sub;
  /** @type {Record<string, unknown>} */
  const time = { ...times, aggregator: first?.aggregator ?? "sum" };
  const interval = first?.interval === "auto" ? auto : first?.interval;
  if (first && interval && interval !== "none") {
    time.downsampler = { interval, aggregator: first.fn, fillPolicy: { policy: first.fill } };
  }
  if (first?.rate) {
    time.rate = true;
  }
  const filters = used
    .filter(({ sub }) => sub.filters.length || sub.explicitTags)
    .map(({ sub, id }) => ({ id: `f${id}`, tags: sub.filters.filter((filter) => filter.tagk), explicitTags: sub.explicitTags }));
  const metrics = used.map(({ sub, id }) => ({
    id,
    metric: sub.metric,
    aggregator: sub.aggregator,
    fillPolicy: { policy: sub.fill === "none" ? "nan" : sub.fill },
    ...(filters.some((filter) => filter.id === `f${id}`) ? { filter: `f${id}` } : {}),
    ...(sub.valueFilters.length ? { valueFilters: sub.valueFilters } : {}),
  }));
  const expressions = arithmetic.map((expression, index) => ({
    id: `e${index + 1}x`,
    expr: expression.text,
    ...(expression.join ? { join: { operator: expression.join, useQueryTags: false, includeAggTags: true } } : {}),
  }));
  return {
    time,
    ...(filters.length ? { filters } : {}),
    metrics,
    expressions,
    outputs: expressions.map(({ id }) => ({ id })),
  };
}
