/** @file The view of running and completed queries. In a cluster it shows the running queries of all nodes. */

import { call, callText } from "./api.js";
import { problemBox } from "./cost.js";
import { button, el, fill } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { readMetrics } from "./metrics.js";
import { panel, polled } from "./poll.js";
import { orderText, readOrder, sortableTable } from "./table.js";
import { timeText } from "./time.js";
import { pageZone } from "./zone.js";

/** @typedef {Record<string, unknown>} QueryJson */

/**
 * @typedef {object} Running
 * @property {number} id
 * @property {string} [clusterId]
 * @property {string} [node]
 * @property {QueryJson} query
 * @property {string} remote
 * @property {string} [user]
 * @property {number} elapsed
 * @property {string} [stage]
 * @property {Record<string, number>} [progress]
 */

/**
 * @typedef {object} Completed
 * @property {number} id
 * @property {QueryJson} query
 * @property {string} remote
 * @property {string} exception
 * @property {number} executed
 * @property {{ code: number } | null} httpResponse
 * @property {number} queryStartTimestamp
 * @property {number} queryCompletedTimestamp
 * @property {Record<string, number>} stats
 */

/** @typedef {{ nodes: { name: string, running: Running[], omitted: number, error: string | null }[] }} ClusterQueries */

/** @type {import("./table.js").Order} */
const NEWEST_FIRST = { column: 0, descending: true };

/** @returns {import("./poll.js").PageView} */
export function queries() {
  const running = el("div", { class: "scroll" });
  const completed = el("div", { class: "scroll" });
  const problem = el("div", { class: "stack" });
  const body = el("div", { class: "stack page-body" }, problem, panel("Running queries", running), panel("Completed queries", completed));
  /** @type {import("./table.js").Order | null} */
  let order = NEWEST_FIRST;
  /** @type {Completed[]} */
  let last = [];
  /** @type {boolean | undefined} */
  let inCluster;

  const cancel = async (/** @type {Running} */ row) => {
    const path = row.clusterId ? `/api/cluster/queries?id=${row.clusterId}` : `/api/stats/query?id=${row.id}`;
    try {
      await callText(path, { method: "DELETE" });
      fill(problem);
    } catch (error) {
      fill(problem, problemBox(error, `Cancel of ${row.clusterId ?? row.id}`));
    }
    view.again();
  };
  const showCompleted = () => {
    fill(completed, last.length ? completedTable(last, order, (changed) => {
      order = changed;
      showCompleted();
      view.save();
    }) : el("p", { class: "panel-body dim" }, "None since the start"));
  };
  const view = polled("/queries", body, 1500, async () => {
    inCluster ??= (await readMetrics()).sum("tsd_cluster_log_members") !== null;
    const [list, nodes] = await Promise.all([
      /** @type {Promise<{ running?: Running[], completed?: Completed[] }>} */ (call("/api/stats/query")),
      inCluster ? /** @type {Promise<ClusterQueries>} */ (call("/api/cluster/queries")).then((found) => found.nodes) : [],
    ]);
    // Replacing the table loses the focus, so it is restored.
    const focused = running.contains(document.activeElement) ? document.activeElement?.id : "";
    const rows = inCluster ? nodes.flatMap((node) => node.running.map((row) => ({ ...row, node: node.name }))) : (list.running ?? []);
    const gaps = nodes.flatMap((node) => [
      ...(node.error ? [`${node.name}: ${node.error}`] : []),
      ...(node.omitted ? [`${node.name}: ${count(node.omitted)} more`] : []),
    ]);
    fill(
      running,
      rows.length ? runningTable(rows, cancel, nodes.length > 1) : el("p", { class: "panel-body dim" }, "None"),
      ...gaps.map((gap) => el("p", { class: "panel-body ERROR" }, gap)),
    );
    if (focused) {
      document.getElementById(focused)?.focus();
    }
    last = list.completed ?? [];
    if (!completed.contains(document.activeElement)) {
      showCompleted();
    }
  }, {
    write: () => ({ sort: orderText(order) === orderText(NEWEST_FIRST) ? "" : orderText(order) }),
    read: (state) => {
      order = readOrder(state.get("sort")) ?? NEWEST_FIRST;
    },
  });
  return view;
}

/**
 * @param {Running[]} rows
 * @param {(row: Running) => void} cancel
 * @param {boolean} withNodes
 * @returns {HTMLElement}
 */
function runningTable(rows, cancel, withNodes) {
  const progress = (/** @type {Running} */ row, /** @type {string} */ name) => row.progress?.[name] ?? 0;
  return sortableTable({
    label: "Running queries",
    rows,
    order: null,
    onOrder: () => {},
    columns: [
      { label: "id", number: true, cell: (row) => row.clusterId ?? row.id },
      ...(withNodes ? [{ label: "node", class: "name", cell: (/** @type {Running} */ row) => row.node ?? "" }] : []),
      { label: "query", class: "name", cell: (row) => queryText(row.query) },
      { label: "client", cell: (row) => [row.user, row.remote].filter(Boolean).join(" @ ") },
      { label: "stage", cell: (row) => row.stage ?? "" },
      { label: "for", number: true, cell: (row) => duration(row.elapsed) },
      { label: "rows", number: true, cell: (row) => count(progress(row, "rowsFromStorage")) },
      { label: "bytes", number: true, cell: (row) => bytes(progress(row, "bytesFromStorage")) },
      { label: "memory", number: true, cell: (row) => bytes(progress(row, "memoryBytes")) },
      { label: "", cell: (row) => button("Cancel", () => cancel(row), { class: "danger", id: `cancel-${row.clusterId ?? row.id}` }) },
    ],
  });
}

/**
 * @param {Completed[]} rows
 * @param {import("./table.js").Order | null} order
 * @param {(order: import("./table.js").Order) => void} onOrder
 * @returns {HTMLElement}
 */
function completedTable(rows, order, onOrder) {
  const time = (/** @type {Completed} */ row) => row.queryCompletedTimestamp - row.queryStartTimestamp;
  const stat = (/** @type {Completed} */ row, /** @type {string} */ name) => row.stats[name] ?? 0;
  return sortableTable({
    label: "Completed queries",
    rows,
    order,
    onOrder,
    columns: [
      { label: `ended (${pageZone()})`, class: "time", cell: (row) => timeText(row.queryCompletedTimestamp, pageZone()), sort: (row) => row.queryCompletedTimestamp },
      { label: "query", class: "name", cell: (row) => queryText(row.query) },
      { label: "client", cell: (row) => row.remote, sort: (row) => row.remote },
      { label: "status", number: true, cell: (row) => statusOf(row), sort: (row) => row.httpResponse?.code ?? 0 },
      { label: "time", number: true, cell: (row) => duration(time(row)), sort: time },
      { label: "points", number: true, cell: (row) => count(stat(row, "emittedDPs")), sort: (row) => stat(row, "emittedDPs") },
      { label: "bytes read", number: true, cell: (row) => bytes(stat(row, "bytesFromStorage")), sort: (row) => stat(row, "bytesFromStorage") },
      { label: "times", number: true, cell: (row) => row.executed, sort: (row) => row.executed },
    ],
  });
}

/**
 * @param {Completed} row
 * @returns {HTMLElement}
 */
function statusOf(row) {
  const code = row.httpResponse?.code;
  const failed = row.exception !== "null" && row.exception !== "";
  return el("span", { title: failed ? row.exception : "", class: failed ? "ERROR" : "" }, code ?? "–");
}

/**
 * Renders a query in one line, with its full text below.
 *
 * @param {QueryJson} query
 * @returns {HTMLElement}
 */
function queryText(query) {
  const subs = /** @type {{ aggregator?: string, metric?: string, downsample?: string, tsuids?: string[] }[]} */ (
    Array.isArray(query["queries"]) ? query["queries"] : Array.isArray(query["metrics"]) ? query["metrics"] : []
  );
  const line = subs
    .slice(0, 3)
    .map((sub) => [sub.aggregator, sub.downsample, sub.metric ?? sub.tsuids?.join(",")].filter(Boolean).join(":"))
    .join(" + ");
  const more = subs.length > 3 ? ` + ${subs.length - 3} more` : "";
  const title = line + more || String(query["name"] ?? "query");
  return el("details", null, el("summary", null, title), el("pre", null, JSON.stringify(query, null, 1)));
}
