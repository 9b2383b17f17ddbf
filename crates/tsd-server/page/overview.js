/** @file The view of ingest, queues and memory. */

import { call } from "./api.js";
import { Chart } from "./chart.js";
import { el, fill } from "./dom.js";
import { bytes, count, duration, short } from "./format.js";
import { readMetrics } from "./metrics.js";
import { panel, polled, tile } from "./poll.js";
import { makeSeries } from "./result.js";
import { statsHistory } from "./self_stats.js";
import { newAxis } from "./view.js";
import { pageZone } from "./zone.js";

/** @typedef {import("./metrics.js").Metrics} Metrics */

const INTERVAL_MS = 2000;

/** Maximum samples of the chart, ten minutes. */
const MOST_SAMPLES = 300;

/**
 * Queues: label, metric, metric of the limit, and true if the values are bytes.
 *
 * @type {readonly (readonly [string, string, string, boolean])[]}
 */
const QUEUES = [
  ["Writes that wait for the store", "tsd_write_queued_bytes", "", true],
  ["Telnet points held back", "tsd_write_held_points", "", false],
  ["Messages in mailboxes", "tsd_actor_mailbox_messages", "", false],
  ["Names that wait for a UID", "tsd_uid_pending_names", "", false],
  ["Unflushed log", "tsd_wal_log_bytes", "tsd_wal_log_limit_bytes", true],
  ["Memtables", "tsd_wal_memtable_bytes", "tsd_wal_memtable_limit_bytes", true],
  ["Memtables that wait for a flush", "tsd_wal_immutable_memtables", "", false],
  ["Rows that wait for compaction", "tsd_compaction_queue_rows", "", false],
  ["Mutations buffered for HBase", "tsd_hbase_buffered_bytes", "", true],
  ["Calls of HBase in flight", "tsd_hbase_calls_in_flight", "", false],
  ["Queries that wait for admission", "tsd_query_queued", "", false],
  ["Memory of queries", "tsd_query_memory_bytes", "tsd_query_memory_limit_bytes", true],
  ["Memory reserved of the limit", "tsd_memory_reserved_bytes", "tsd_memory_limit_bytes", true],
];

/**
 * @param {number} value
 * @returns {string}
 */
function rough(value) {
  return short(value, 3);
}

/** @returns {import("./poll.js").PageView} */
export function overview() {
  const tiles = el("div", { class: "tiles" });
  const queues = el("div", { class: "scroll" });
  const chart = new Chart({ onRange: () => {}, onAnnotate: () => {}, onAnnotation: () => {}, onNear: () => {} }, "Points per second");
  chart.element.classList.add("small");
  /** @type {{ ms: number, stored: number, failed: number }[]} */
  const samples = [];
  /** @type {Metrics | null} */
  let before = null;
  const history = statsHistory();
  const body = el(
    "div",
    { class: "stack page-body" },
    tiles,
    panel("Points received per second", chart.element),
    ...history.element,
    panel("Queues and memory", queues),
  );

  return polled("/overview", body, INTERVAL_MS, async () => {
    const [now, process] = await Promise.all([readMetrics(), readProcess()]);
    const received = now.rate(before, "tsd_ingest_points_received_total");
    const refused = sumOf(now.rate(before, "tsd_server_put_errors_total"), now.rate(before, "tsd_write_points_failed_total"));
    if (received !== null) {
      samples.push({ ms: Date.now(), stored: received, failed: refused ?? 0 });
      samples.splice(0, samples.length - MOST_SAMPLES);
    }
    fill(tiles, tilesOf(now, before, received, refused, process));
    fill(queues, queueTable(now));
    drawSamples(chart, samples);
    before = now;
    await history.refresh();
  });
}

/**
 * @param {number | null} a
 * @param {number | null} b
 * @returns {number | null}
 */
function sumOf(a, b) {
  return a === null && b === null ? null : (a ?? 0) + (b ?? 0);
}

/** @returns {Promise<{ uptime: number, load: number }>} */
async function readProcess() {
  const jvm = /** @type {{ runtime?: { uptime?: number }, os?: { systemLoadAverage?: number } }} */ (await call("/api/stats/jvm"));
  return { uptime: jvm.runtime?.uptime ?? NaN, load: jvm.os?.systemLoadAverage ?? NaN };
}

/**
 * @param {Metrics} now
 * @param {Metrics | null} before
 * @param {number | null} received
 * @param {number | null} refused
 * @param {{ uptime: number, load: number }} process
 * @returns {HTMLElement[]}
 */
function tilesOf(now, before, received, refused, process) {
  const text = (/** @type {number | null} */ value, /** @type {(n: number) => string} */ format = rough) => (value === null ? "…" : format(value));
  const total = (/** @type {string} */ name) => now.sum(name);
  const requests = now.rate(before, "tsd_server_requests_total", ({ protocol }) => protocol !== "telnet");
  const disk = sumOf(total("tsd_parts_disk_bytes"), total("tsd_lsm_disk_bytes"));
  const cpu = now.rate(before, "process_cpu_seconds_total");
  const memory = total("process_resident_memory_bytes");
  const limit = total("tsd_memory_limit_bytes");
  const series = total("tsd_parts_series_index_series") ?? total("tsd_hbase_series_index_series");
  return [
    tile("Points per second", text(received), `${text(total("tsd_ingest_points_received_total"), count)} since the start`),
    tile("Refused per second", text(refused), "points not stored", refused ? "bad" : ""),
    tile("HTTP requests per second", text(requests), `${text(total("tsd_server_connections_open"), count)} connections`),
    tile("Queries running", text(total("tsd_query_running"), count), `${text(total("tsd_query_queued"), count)} queued`),
    ...(series === null ? [] : [tile("Series", text(series), `${text(total("tsd_series_cache_entries"), count)} cached`)]),
    ...(disk === null ? [] : [tile("On disk", text(disk, bytes), `${text(total("tsd_parts_files"), count)} part files`)]),
    ...(memory === null ? [] : [tile("Memory", bytes(memory), limit ? `limit ${bytes(limit)}` : "", limit && memory > limit ? "warn" : "")]),
    tile("Processor", cpu === null ? "…" : `${short(cpu * 100, 2)} %`, `load of the machine ${rough(process.load)}`),
    tile("Up", Number.isFinite(process.uptime) ? duration(process.uptime) : "–"),
  ];
}

/**
 * @param {Metrics} now
 * @returns {HTMLElement}
 */
function queueTable(now) {
  const rows = QUEUES.flatMap(([label, name, limitName, isBytes]) => {
    const value = now.sum(name);
    if (value === null) {
      return [];
    }
    const format = isBytes ? bytes : count;
    const limit = limitName ? now.sum(limitName) : null;
    const share = limit ? Math.min(1, value / limit) : null;
    const meter = share === null ? null : el("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: share, title: `${short(share * 100)} %` });
    return [
      el(
        "tr",
        null,
        el("td", null, label),
        el("td", { class: "num" }, format(value)),
        el("td", { class: "num dim" }, limit ? `of ${format(limit)}` : ""),
        el("td", { class: "meter" }, meter),
      ),
    ];
  });
  return el("table", { "aria-label": "Queues and memory" }, el("tbody", null, rows));
}

/**
 * @param {Chart} chart
 * @param {{ ms: number, stored: number, failed: number }[]} samples
 */
function drawSamples(chart, samples) {
  const times = Float64Array.from(samples, ({ ms }) => ms);
  const line = (/** @type {string} */ name, /** @type {Float64Array} */ values, /** @type {number} */ color) => ({
    ...makeSeries({ where: name, name, tags: [], aggregated: [], tsuids: [], times, values, axis: 1, style: color ? "line" : "area" }),
    color,
  });
  const now = Date.now();
  chart.show({
    series: [
      line("received", Float64Array.from(samples, ({ stored }) => stored), 0),
      ...(samples.some(({ failed }) => failed) ? [line("refused", Float64Array.from(samples, ({ failed }) => failed), 6)] : []),
    ],
    annotations: [],
    start: Math.min(now - 60_000, samples[0]?.ms ?? now),
    end: now,
    zone: pageZone(),
    axes: [newAxis(), newAxis()],
    joinGaps: false,
  });
  chart.setNote(samples.length ? "" : "The rate is known after the second sample");
}
