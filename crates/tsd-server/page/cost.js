/** @file The cost of a query: time by stage and amounts read, from the summary in the response, and its plan. */

import { callText, ApiFailure, call } from "./api.js";
import { button, el, fill } from "./dom.js";
import { bytes, count, duration } from "./format.js";

/** @typedef {import("./result.js").Summary} Summary */
/** @typedef {import("./request.js").QueryRequest} QueryRequest */

/** Stages in execution order: the name in the summary, and the label. */
const STAGES = /** @type {const} */ ([
  ["stringToUidTime", "names to UIDs"],
  ["avgQueryScanTime", "read"],
  ["avgAggregationTime", "aggregate"],
  ["avgUidToStringTime", "UIDs to names"],
  ["avgSerializationTime", "write the response"],
]);

const READS = /** @type {const} */ ([
  ["dpsPostFilter", "points read", count],
  ["emittedDPs", "points returned", count],
  ["rowsFromStorage", "rows", count],
  ["bytesFromStorage", "bytes", bytes],
  ["cpuTime", "processor time", duration],
  ["waitTime", "waited", duration],
  ["peakMemoryBytes", "peak memory", bytes],
]);

export class CostPanel {
  constructor() {
    /** @type {Summary | null} */
    this.summary = null;
    /** @type {QueryRequest | null} */
    this.request = null;
    this.roundTripMs = 0;
    this.plan = el("div");
    this.body = el("div", { class: "panel-body stack" });
    this.element = el("details", { class: "panel cost" }, el("summary", { class: "panel-head" }, "Cost"), this.body);
  }

  /**
   * @param {Summary | null} summary
   * @param {QueryRequest | null} request
   * @param {number} roundTripMs
   */
  show(summary, request, roundTripMs) {
    this.summary = summary;
    this.request = request;
    this.roundTripMs = roundTripMs;
    fill(this.plan);
    this.element.hidden = !summary;
    if (summary) {
      this.render(summary);
    }
  }

  /** @param {Summary} summary */
  render(summary) {
    const total = Math.max(numberIn(summary, "totalTime"), numberIn(summary, "processingPreWriteTime"), 1e-3);
    const bars = STAGES.flatMap(([name, label]) => bar(label, numberIn(summary, name), total));
    const reads = READS.filter(([name]) => name in summary).map(([name, label, format]) =>
      el("span", null, el("span", { class: "dim" }, `${label} `), format(numberIn(summary, name))),
    );
    fill(
      this.body,
      el("div", { class: "status-line" }, el("span", null, `${duration(total)} in the daemon, ${duration(this.roundTripMs)} until it was here`), reads),
      el("div", { class: "bars" }, bars),
      el(
        "div",
        { class: "row" },
        button("Explain", () => void this.explain(), { title: "The plan: which tables and rows are read, and where filters run" }),
        el("details", null, el("summary", null, "All figures"), el("pre", null, JSON.stringify(summary, null, 1))),
      ),
      this.plan,
    );
  }

  /** Requests the plan of the query. */
  async explain() {
    if (!this.request) {
      return;
    }
    try {
      const answer = /** @type {{ explain?: { index: number, reads: { table: string, text: string, estimatedRows: unknown }[] }[] }} */ (
        await call("/api/query?explain", { body: this.request.body })
      );
      const plans = (answer.explain ?? []).map((plan) =>
        el("div", null, el("h3", null, `Sub query ${plan.index + 1}`), plan.reads.map((read) => el("pre", null, read.text))),
      );
      fill(this.plan, plans);
    } catch (error) {
      fill(this.plan, problemBox(error));
    }
  }
}

/**
 * @param {Summary} summary
 * @param {string} name
 * @returns {number}
 */
function numberIn(summary, name) {
  const value = summary[name];
  return typeof value === "number" ? value : 0;
}

/**
 * Renders a bar with its label and length.
 *
 * @param {string} label
 * @param {number} ms
 * @param {number} total
 * @returns {HTMLElement[]}
 */
function bar(label, ms, total) {
  const inner = el("i");
  inner.style.width = `${Math.min(100, (ms / total) * 100).toFixed(1)}%`;
  return [el("span", null, label), el("span", { class: "track" }, inner), el("span", { class: "num" }, duration(ms))];
}

/**
 * Renders an error with the daemon's message and details.
 *
 * @param {unknown} error
 * @param {string} [what] the failed operation
 * @returns {HTMLElement}
 */
export function problemBox(error, what) {
  const failure = error instanceof ApiFailure ? error : null;
  const message = error instanceof Error ? error.message : String(error);
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("strong", null, what ? `${what}: ` : "", failure?.status ? `${failure.status} ` : ""),
    message,
    failure?.details && failure.details !== message ? el("pre", null, failure.details) : null,
    failure?.status === 401 ? signIn() : null,
  );
}

/**
 * Says how to give credentials.
 *
 * @returns {HTMLElement}
 */
function signIn() {
  return el(
    "div",
    { class: "row" },
    el("span", null, "This daemon asks for a user: after a reload the browser asks for its name and password. An administrator makes users with "),
    el("code", null, "tsdb user add NAME READER"),
    button("Sign in", () => location.reload(), { id: "sign-in" }),
  );
}

/** Header that identifies queries of this page in the list of queries. */
export const REQUEST_HEADER = "X-Page-Request";

/**
 * Cancels the running queries with this mark in their headers, in case the daemon did not notice the end of the connection, for
 * example behind a proxy.
 *
 * @param {string} mark
 */
export async function cancelMarked(mark) {
  const list = /** @type {{ running?: { id?: number, headers?: Record<string, string> }[] }} */ (await call("/api/stats/query"));
  for (const { id, headers } of list.running ?? []) {
    const found = Object.entries(headers ?? {}).some(([name, value]) => name.toLowerCase() === REQUEST_HEADER.toLowerCase() && value === mark);
    if (found && id !== undefined) {
      await callText(`/api/stats/query?id=${id}`, { method: "DELETE" });
    }
  }
}
