/** @file The daemon's own metrics, from `/metrics` or, if disabled, from `/api/stats`. */

import { ApiFailure, call, callText } from "./api.js";

/** @typedef {{ labels: Record<string, string>, value: number }} Sample */

/** Metrics at one time. */
export class Metrics {
  /** @param {Map<string, Sample[]>} samples */
  constructor(samples) {
    this.samples = samples;
    this.at = performance.now();
  }

  /**
   * Returns the sum of a metric over its labels; null if the daemon does not have the metric.
   *
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} [accept]
   * @returns {number | null}
   */
  sum(name, accept = () => true) {
    const samples = this.samples.get(name)?.filter(({ labels }) => accept(labels));
    return samples?.length ? samples.reduce((sum, { value }) => sum + value, 0) : null;
  }

  /**
   * Returns the growth of a counter per second since an earlier reading; null if unknown.
   *
   * @param {Metrics | null} before
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} [accept]
   * @returns {number | null}
   */
  rate(before, name, accept) {
    const [now, then] = [this.sum(name, accept), before?.sum(name, accept) ?? null];
    if (now === null || then === null || !before) {
      return null;
    }
    // After a restart of the daemon, the counter begins at zero.
    return Math.max(0, now < then ? now : now - then) / Math.max(1e-3, (this.at - before.at) / 1000);
  }
}

/** Statistics that replace metrics: name, tags, and the metric. */
const STATISTICS = /** @type {const} */ ([
  ["tsd.rpc.received", "put", "tsd_ingest_points_received_total"],
  ["tsd.rpc.received", "http", "tsd_server_requests_total"],
  ["tsd.connectionmgr.connections", "open", "tsd_server_connections_open"],
]);

/** @returns {Promise<Metrics>} */
export async function readMetrics() {
  try {
    return new Metrics(parseExposition(await callText("/metrics")));
  } catch (error) {
    if (!(error instanceof ApiFailure) || error.status !== 404) {
      throw error;
    }
  }
  /** @type {Map<string, Sample[]>} */
  const samples = new Map();
  const stats = /** @type {{ metric: string, value: string, tags: Record<string, string> }[]} */ (await call("/api/stats"));
  for (const { metric, value, tags } of stats) {
    const stands = STATISTICS.find(([name, type]) => name === metric && type === tags["type"]);
    if (stands) {
      samples.set(stands[2], [{ labels: tags, value: Number(value) }]);
    }
  }
  return new Metrics(samples);
}

/**
 * Parses the text format of Prometheus.
 *
 * @param {string} text
 * @returns {Map<string, Sample[]>}
 */
export function parseExposition(text) {
  /** @type {Map<string, Sample[]>} */
  const samples = new Map();
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) {
      continue;
    }
    const [, name = "", inner = "", value = ""] = match;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, key = "", quoted = ""] of inner.matchAll(/([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
      labels[key] = quoted.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : String(c)));
    }
    const list = samples.get(name) ?? [];
    list.push({ labels, value: value === "+Inf" ? Infinity : Number(value) });
    samples.set(name, list);
  }
  return samples;
}

/**
 * Returns a quantile of a histogram, since the earlier reading if there is one; null without observations.
 *
 * @param {Metrics} now
 * @param {string} name without `_bucket`
 * @param {number} quantile
 * @param {(labels: Record<string, string>) => boolean} accept
 * @returns {number | null}
 */
export function quantileOf(now, name, quantile, accept) {
  const direct = now.samples.get(name)?.find(({ labels }) => Number(labels["quantile"]) === quantile && accept(labels));
  if (direct) {
    return direct.value;
  }
  /** @type {Map<number, number>} */
  const buckets = new Map();
  for (const { labels, value } of now.samples.get(`${name}_bucket`) ?? []) {
    if (accept(labels)) {
      const bound = labels["le"] === "+Inf" ? Infinity : Number(labels["le"]);
      buckets.set(bound, (buckets.get(bound) ?? 0) + value);
    }
  }
  const sorted = [...buckets].sort(([a], [b]) => a - b);
  const total = sorted[sorted.length - 1]?.[1] ?? 0;
  if (!total) {
    return null;
  }
  const found = sorted.find(([, n]) => n >= total * quantile);
  const finite = sorted.filter(([bound]) => bound !== Infinity);
  return found && found[0] !== Infinity ? found[0] : (finite[finite.length - 1]?.[0] ?? null);
}
