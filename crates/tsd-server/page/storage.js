/** @file The view of health, storage and, with HBase, its servers and the members of the cluster. */

import { call } from "./api.js";
import { el, fill } from "./dom.js";
import { bytes, count, duration, short } from "./format.js";
import { quantileOf, readMetrics } from "./metrics.js";
import { panel, polled, tile } from "./poll.js";
import { sortableTable } from "./table.js";
import { zonedTime } from "./time.js";
import { pageZone } from "./zone.js";

/** @typedef {import("./metrics.js").Metrics} Metrics */

/** @typedef {{ endpoint: string, dead: boolean, rpcsSent: number, rpcsInFlight: number, inflightBreached: number, rpcsFailed: number, latency50pctMs: number, latency99pctMs: number }} RegionClient */

/** @typedef {{ name: string, address: string | null, state: string, this: boolean, heartbeatAgeMs: number, logBytes: number, heldRows: number | null, heldBytes: number | null, version: string | null, clockAheadMs: number | null, error: string | null, slots: { owned: number, movingIn: number, movingOut: number } | null }} ClusterNode */

/** @typedef {{ generation: number, moving: number, withoutOwner: number }} SlotSummary */

/** @typedef {{ part: string, impact: string, reason: string }} Problem */

/** @typedef {{ status: string, problems?: Problem[], retention?: Record<string, number> }} Status */

/**
 * Figures of the store: label, metric, format, and true if a value above zero is a reason for concern.
 *
 * @type {readonly (readonly [string, string, (n: number) => string, boolean])[]}
 */
const FIGURES = [
  ["Parts on disk", "tsd_parts_disk_bytes", bytes, false],
  ["Part files", "tsd_parts_files", count, false],
  ["Sections", "tsd_parts_sections", count, false],
  ["Small tables on disk", "tsd_lsm_disk_bytes", bytes, false],
  ["L0 runs", "tsd_lsm_l0_runs", count, false],
  ["Unflushed log", "tsd_wal_log_bytes", bytes, false],
  ["Oldest unflushed change", "tsd_wal_oldest_unflushed_seconds", (n) => duration(n * 1000), false],
  ["Series in the index", "tsd_parts_series_index_series", count, false],
  ["Regions in the cache", "tsd_hbase_cached_regions", count, false],
  ["Unavailable regions", "tsd_hbase_unavailable_regions", count, true],
  ["Regions under pressure", "tsd_hbase_regions_under_pressure", count, true],
  ["Rejected rows", "tsd_wal_rejected_rows", count, true],
  ["Stuck tables", "tsd_wal_stuck_tables", count, true],
  ["Files in quarantine", "tsd_parts_quarantined_files", count, true],
  ["Damaged files of small tables", "tsd_lsm_quarantined_files", count, true],
];

/** @returns {import("./poll.js").PageView} */
export function storage() {
  const health = el("div", { class: "panel-body stack" });
  const figures = el("div", { class: "tiles" });
  const calls = el("div", { class: "scroll" });
  const servers = el("div", { class: "scroll" });
  const serverPanel = panel("Region servers", servers);
  const nodes = el("div", { class: "scroll" });
  const nodePanel = panel("Nodes of the cluster", nodes);
  const body = el("div", { class: "stack page-body" }, panel("Health", health), figures, nodePanel, panel("Calls of the store", calls), serverPanel);
  return polled("/storage", body, 3000, async () => {
    const [status, metrics, clients] = await Promise.all([
      /** @type {Promise<Status>} */ (call("/api/status")),
      readMetrics(),
      /** @type {Promise<RegionClient[]>} */ (call("/api/stats/region_clients")),
    ]);
    fill(health, healthOf(status));
    fill(figures, figuresOf(metrics));
    fill(calls, callTable(metrics));
    // Without a cluster, /api/cluster responds with an error.
    nodePanel.hidden = metrics.sum("tsd_cluster_log_members") === null;
    if (!nodePanel.hidden) {
      const cluster = /** @type {{ nodes: ClusterNode[], slots: SlotSummary | null }} */ (await call("/api/cluster"));
      fill(nodes, nodeTable(cluster.nodes), cluster.slots && slotLine(cluster.slots));
    }
    serverPanel.hidden = clients.length === 0;
    if (clients.length) {
      fill(servers, serverTable(clients), rpcTable(metrics));
    }
  });
}

/**
 * @param {Status} status
 * @returns {HTMLElement[]}
 */
function healthOf(status) {
  const problems = status.problems ?? [];
  const list = problems.map(({ part, impact, reason }) =>
    el("div", { class: "problem" }, el("strong", null, `${part}: ${impact}`), el("div", null, reason)),
  );
  const head = el("div", null, "State: ", el("b", { id: "health-state" }, status.status), problems.length ? "" : ", no problems");
  const kept = status.retention;
  if (!kept) {
    return [head, ...list];
  }
  const line = [
    `points are kept for ${kept["defaultSeconds"] ? duration(kept["defaultSeconds"] * 1000) : "ever, but for the rules by metric"}`,
    `${count(kept["rules"] ?? 0)} rules`,
    `cut-off ${zonedTime((kept["newestCutoff"] ?? 0) * 1000, pageZone())}`,
    `${count(kept["droppedSpans"] ?? 0)} spans with ${bytes(kept["droppedBytes"] ?? 0)} dropped`,
  ];
  return [head, ...list, el("div", { class: "dim" }, `Retention: ${line.join(", ")}`)];
}

/**
 * @param {Metrics} metrics
 * @returns {HTMLElement[]}
 */
function figuresOf(metrics) {
  return FIGURES.flatMap(([label, name, format, concern]) => {
    const value = metrics.sum(name);
    return value === null || (concern && value === 0) ? [] : [tile(label, format(value), "", concern ? "bad" : "")];
  });
}

/**
 * @param {Metrics} metrics
 * @returns {HTMLElement}
 */
function callTable(metrics) {
  const totals = metrics.samples.get("tsd_storage_calls_total") ?? [];
  if (!totals.length) {
    return el("p", { class: "panel-body dim" }, "No calls yet, or /metrics is off");
  }
  const label = Object.keys(totals[0]?.labels ?? {}).find((key) => /op/.test(key)) ?? "operation";
  return latencyTable(metrics, totals.map(({ labels }) => labels[label] ?? ""), label, {
    calls: "tsd_storage_calls_total",
    failed: "tsd_storage_errors_total",
    seconds: "tsd_storage_call_seconds",
  });
}

/**
 * @param {Metrics} metrics
 * @returns {HTMLElement | null}
 */
function rpcTable(metrics) {
  const totals = metrics.samples.get("tsd_hbase_rpcs_total") ?? [];
  if (!totals.length) {
    return null;
  }
  return latencyTable(metrics, totals.map(({ labels }) => labels["method"] ?? ""), "method", {
    calls: "tsd_hbase_rpcs_total",
    failed: "tsd_hbase_rpc_failures_total",
    seconds: "tsd_hbase_rpc_seconds",
  });
}

/**
 * Renders calls by kind with their latencies.
 *
 * @param {Metrics} metrics
 * @param {string[]} kinds
 * @param {string} label
 * @param {{ calls: string, failed: string, seconds: string }} names
 * @returns {HTMLElement}
 */
function latencyTable(metrics, kinds, label, names) {
  const of = (/** @type {string} */ kind) => (/** @type {Record<string, string>} */ labels) => labels[label] === kind;
  const average = (/** @type {string} */ kind) => {
    const [sum, n] = [metrics.sum(`${names.seconds}_sum`, of(kind)), metrics.sum(`${names.seconds}_count`, of(kind))];
    return sum !== null && n ? (sum / n) * 1000 : NaN;
  };
  const quantile = (/** @type {string} */ kind, /** @type {number} */ q) => {
    const seconds = quantileOf(metrics, names.seconds, q, of(kind));
    return seconds === null ? NaN : seconds * 1000;
  };
  const ms = (/** @type {number} */ value) => (Number.isNaN(value) ? "–" : duration(value));
  return sortableTable({
    label: "Calls with latencies",
    rows: [...new Set(kinds)].filter((kind) => metrics.sum(names.calls, of(kind))),
    order: null,
    onOrder: () => {},
    columns: [
      { label, cell: (kind) => kind },
      { label: "calls", number: true, cell: (kind) => count(metrics.sum(names.calls, of(kind)) ?? 0) },
      { label: "failed", number: true, cell: (kind) => count(metrics.sum(names.failed, of(kind)) ?? 0) },
      { label: "average", number: true, cell: (kind) => ms(average(kind)) },
      { label: "half within", number: true, cell: (kind) => ms(quantile(kind, 0.5)) },
      { label: "99 % within", number: true, cell: (kind) => ms(quantile(kind, 0.99)) },
    ],
  });
}

/**
 * @param {RegionClient[]} clients
 * @returns {HTMLElement}
 */
function serverTable(clients) {
  return sortableTable({
    label: "Region servers",
    rows: clients,
    order: null,
    onOrder: () => {},
    columns: [
      { label: "server", class: "name", cell: (client) => client.endpoint },
      { label: "state", cell: (client) => (client.dead ? el("span", { class: "ERROR" }, "not connected") : "connected") },
      { label: "calls", number: true, cell: (client) => count(client.rpcsSent) },
      { label: "failed", number: true, cell: (client) => count(client.rpcsFailed) },
      { label: "half within", number: true, cell: (client) => duration(client.latency50pctMs) },
      { label: "99 % within", number: true, cell: (client) => duration(client.latency99pctMs) },
      { label: "in flight", number: true, cell: (client) => count(client.rpcsInFlight) },
      { label: "waited for admission", number: true, cell: (client) => short(client.inflightBreached) },
    ],
  });
}

/**
 * @param {ClusterNode[]} nodes
 * @returns {HTMLElement}
 */
function nodeTable(nodes) {
  const known = (/** @type {number | null} */ value, /** @type {(n: number) => string} */ format) => (value === null ? "–" : format(value));
  return sortableTable({
    label: "Nodes of the cluster",
    rows: nodes,
    order: null,
    onOrder: () => {},
    columns: [
      { label: "node", class: "name", cell: (node) => (node.this ? `${node.name} (this)` : node.name) },
      { label: "state", cell: (node) => (node.error ? el("span", { class: "ERROR" }, `${node.state}: ${node.error}`) : node.state) },
      { label: "address", cell: (node) => node.address ?? "–" },
      { label: "heartbeat", number: true, cell: (node) => duration(node.heartbeatAgeMs) },
      { label: "log", number: true, cell: (node) => bytes(node.logBytes) },
      { label: "held rows", number: true, cell: (node) => known(node.heldRows, count) },
      { label: "held", number: true, cell: (node) => known(node.heldBytes, bytes) },
      { label: "clock ahead", number: true, cell: (node) => known(node.clockAheadMs, (ms) => `${ms} ms`) },
      { label: "version", cell: (node) => node.version ?? "–" },
      { label: "slots", number: true, cell: slotsOf },
    ],
  });
}

/**
 * Renders the number of slots, and how many are moving in and out.
 *
 * @param {ClusterNode} node
 * @returns {string}
 */
function slotsOf({ slots }) {
  if (!slots) {
    return "–";
  }
  const moving = [slots.movingIn && `+${slots.movingIn}`, slots.movingOut && `−${slots.movingOut}`];
  return [count(slots.owned), ...moving.filter(Boolean)].join(" ");
}

/**
 * @param {SlotSummary} slots
 * @returns {HTMLElement}
 */
function slotLine({ generation, moving, withoutOwner }) {
  const without = el("span", { class: withoutOwner ? "ERROR" : "" }, `${count(withoutOwner)} without an owner`);
  return el("p", { class: "panel-body dim", id: "slots" }, `Slots: generation ${count(generation)}, ${count(moving)} to be moved, `, without);
}
