/** @file The view of running and completed queries. */

import { call, callText } from "./api.js";
import { problemBox } from "./cost.js";
import { button, el, fill } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { panel, polled } from "./poll.js";
import { sortableTable } from "./table.js";
import { localZone, timeText } from "./time.js";

/** @typedef {Record<string, unknown>} QueryJson */

/**
 * @typedef {object} Running
 * @property {number} id
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

/** @returns {import("./poll.js").PageView} */
export function queries() {
  const running = el("div", { class: "scroll" });
  const completed = el("div", { class: "scroll" });
  const problem = el("div", { class: "stack" });
  const body = el("div", { class: "stack page-body" }, problem, panel("Running queries", running), panel("Completed queries", completed));
  /** @type {import("./table.js").Order | null} */
  let order = { column: 0, descending: true };
  /** @type {Completed[]} */
  let last = [];

  const cancel = async (/** @type {number} */ id) => {
    try {
      await callText(`/api/stats/query?id=${id}`, { method: "DELETE" });
      fill(problem);
    } catch (error) {
      fill(problem, problemBox(error, `Cancel of ${id}`));
    }
    view.again();
  };
  const showCompleted = () => {
    fill(completed, last.length ? completedTable(last, order, (changed) => {
      order = changed;
      showCompleted();
    }) : el("p", { class: "panel-body dim" }, "None since the start"));
  };
  const view = polled(body, 1500, async () => {
    const list = /** @type {{ running?: Running[], completed?: Completed[] }} */ (await call("/api/stats/query"));
    // A table that is drawn anew loses the focus.
    const focused = running.contains(document.activeElement) ? document.activeElement?.id : "";
    const rows = list.running ?? [];
    fill(running, rows.length ? runningTable(rows, cancel) : el("p", { class: "panel-body dim" }, "None"));
    if (focused) {
      document.getElementById(focused)?.focus();
    }
    last = list.completed ?? [];
    if (!completed.contains(document.activeElement)) {
      showCompleted();
    }
  });
  return view;
}

/**
 * @param {Running[]} rows
 * @param {(id: number) => void} cancel
 * @returns {HTMLElement}
 */
function runningTable(rows, cancel) {
  const progress = (/** @type {Running} */ row, /** @type {string} */ name) => row.progress?.[name] ?? 0;
  return sortableTable({
    label: "Running queries",
    rows,
    order: null,
    onOrder: () => {},
    columns: [
      { label: "id", number: true, cell: (row) => row.id },
      { label: "query", class: "name", cell: (row) => queryText(row.query) },
      { label: "client", cell: (row) => [row.user, row.remote].filter(Boolean).join(" @ ") },
      { label: "stage", cell: (row) => row.stage ?? "" },
      { label: "for", number: true, cell: (row) => duration(row.elapsed) },
      { label: "rows", number: true, cell: (row) => count(progress(row, "rowsFromStorage")) },
      { label: "bytes", number: true, cell: (row) => bytes(progress(row, "bytesFromStorage")) },
      { label: "memory", number: true, cell: (row) => bytes(progress(row, "memoryBytes")) },
      { label: "", cell: (row) => button("Cancel", () => cancel(row.id), { class: "danger", id: `cancel-${row.id}` }) },
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
      { label: "ended", cell: (row) => timeText(row.queryCompletedTimestamp, localZone()), sort: (row) => row.queryCompletedTimestamp },
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
 * A query in a line, with all of it below.
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
