/** @file The view with queries and chart: it keeps the view, its link and the results together. */

import { AnnotationList, annotationDialog } from "./annotate.js";
import { callText, suggest, tagsOf } from "./api.js";
import { Chart, colorOf } from "./chart.js";
import { pan, zoom } from "./chart_input.js";
import { CostPanel, REQUEST_HEADER, cancelMarked, problemBox } from "./cost.js";
import { button, check, download, el, field, fill, keepFocus, select, textField } from "./dom.js";
import { emptyState } from "./empty.js";
import { csvOf, jsonOf } from "./export.js";
import { count, duration, plural } from "./format.js";
import { parseLink, renderLink } from "./link.js";
import { QueryForm, intervalList } from "./query_form.js";
import { rangeOf, requestsOf } from "./request.js";
import { readResponse } from "./result.js";
import { Legend, PointTable } from "./table.js";
import { isRelative, isZone, localZone, timeExpression, zoneNames } from "./time.js";
import { asks, newSub, newView } from "./view.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").Axis} Axis */
/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./result.js").Annotation} Annotation */
/** @typedef {import("./result.js").QueryResult} QueryResult */
/** @typedef {import("./request.js").QueryRequest} QueryRequest */
/** @typedef {import("./query_form.js").Vocabulary} Vocabulary */

const RANGES = /** @type {const} */ (["15m", "1h", "6h", "1d", "7d", "30d"]);

const REFRESHES = /** @type {[string, string][]} */ ([
  ["0", "off"], ["1", "1 s"], ["5", "5 s"], ["10", "10 s"], ["30", "30 s"], ["60", "1 min"], ["300", "5 min"],
]);

/** Pause after a change before the query is sent, so that several changes are one query. */
const SETTLE_MS = 150;

export class GraphView {
  /** @param {Vocabulary} vocabulary */
  constructor(vocabulary) {
    this.view = newView();
    /** @type {QueryResult} */
    this.result = { series: [], annotations: [], summary: null };
    /** Responses as they came, by kind. @type {Map<string, string>} */
    this.responses = new Map();
    /** Keys of series that are hidden. @type {Set<string>} */
    this.hidden = new Set();
    /** @type {AbortController | null} */
    this.running = null;
    this.mark = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.settle = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.refresh = undefined;
    this.isShown = false;

    this.form = new QueryForm(this.view, vocabulary, () => this.changed());
    this.chart = new Chart(
      {
        onRange: (start, end) => this.setRange(start, end),
        onAnnotate: (ms) => this.annotate(ms, null),
        onAnnotation: (annotation) => this.annotate(annotation.startMs, annotation),
        onNear: (series) => this.legend.mark(series),
      },
      "Chart",
    );
    this.legend = new Legend(
      (series) => colorOf(series, getComputedStyle(this.chart.element)),
      () => this.hiddenChanged(),
    );
    this.annotations = new AnnotationList((annotation) => this.annotate(annotation.startMs, annotation));
    this.points = new PointTable();
    this.cost = new CostPanel();
    this.timeBar = el("div", { class: "timebar", role: "group", "aria-label": "Time range" });
    this.busy = el("div", { class: "busy" });
    this.problems = el("div", { class: "stack" });
    this.status = el("div", { class: "status-line", role: "status" });
    this.axisFields = el("div", { class: "stack" });
    this.chartPanel = el("div", { class: "panel" }, this.chart.element);
    this.legendPanel = el("div", { class: "panel" }, this.legend.element);
    this.runButton = button("Run", () => this.run(), { class: "primary", id: "run", title: "Run the query (Ctrl+Enter)" });
    this.cancelButton = button("Cancel", () => this.cancel(), { class: "danger", id: "cancel", hidden: true });
    this.empty = el("div", { hidden: true });
    this.stage = el("div", { class: "stage" });
    this.exports = el("span", { class: "row end" });
    this.element = this.layOut();
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        this.run();
      }
    });
  }

  /** @returns {HTMLElement} */
  layOut() {
    const side = el(
      "aside",
      { class: "side", "aria-label": "Query" },
      el("div", { class: "bar" }, this.runButton, this.cancelButton, button("Clear", () => this.setView(newView(), true), { class: "quiet end" })),
      el("div", { class: "side-body" }, this.form.element, this.axisFields, intervalList()),
    );
    fill(
      this.exports,
      el(
        "span",
        { class: "segment", role: "group", "aria-label": "Show as" },
        button("Chart", () => this.setShow("chart"), { id: "as-chart" }),
        button("Table", () => this.setShow("table"), { id: "as-table" }),
      ),
      button("Annotate", () => this.annotate(this.chosenTime(), null), { title: "Write an annotation (A on the chart, Alt with a click)" }),
      button("PNG", () => this.exportPng(), { title: "The chart as a picture" }),
      button("CSV", () => this.exportText("csv"), { title: "The shown series as a table" }),
      button("JSON", () => this.exportText("json"), { title: "The response of the daemon" }),
      button("Copy link", () => void this.copyLink(), { title: "A link to this view" }),
    );
    fill(
      this.stage,
      this.timeBar,
      this.busy,
      this.problems,
      this.empty,
      this.chartPanel,
      this.points.element,
      el("div", { class: "row" }, this.status, this.exports),
      this.legendPanel,
      this.annotations.element,
      this.cost.element,
    );
    return el("div", { class: "graph" }, side, this.stage);
  }

  /** @param {string} hash the part of the address after `#` */
  open(hash) {
    this.isShown = true;
    const { view, problems } = parseLink(hash);
    this.view = view;
    this.renderForms();
    this.points.element.hidden = view.show !== "table";
    this.chartPanel.hidden = view.show === "table";
    this.legendPanel.hidden = this.result.series.length === 0;
    this.cost.element.hidden = !this.result.summary;
    fill(this.problems, problems.map((problem) => problemBox(new Error(problem), "Link")));
    this.run();
  }

  /** Stops what runs by itself while another view is shown. */
  close() {
    this.isShown = false;
    clearTimeout(this.refresh);
    this.running?.abort();
  }

  /**
   * @param {View} view
   * @param {boolean} push a step back leads to the view before
   */
  setView(view, push) {
    this.view = view;
    this.renderForms();
    this.saveLink(push);
    this.run();
  }

  renderForms() {
    this.form.setView(this.view);
    this.renderTimeBar();
    this.renderAxisFields();
  }

  /** The view was edited. */
  changed() {
    this.saveLink(false);
    clearTimeout(this.settle);
    this.settle = setTimeout(() => this.run(), SETTLE_MS);
  }

  /** @param {boolean} push */
  saveLink(push) {
    const link = `#${renderLink(this.view)}`;
    if (link !== location.hash) {
      // Neither fires `hashchange`.
      history[push ? "pushState" : "replaceState"](null, "", link);
    }
  }

  renderTimeBar() {
    keepFocus(this.timeBar, () => this.fillTimeBar());
  }

  fillTimeBar() {
    const { view } = this;
    const time = (/** @type {"start" | "end"} */ name, /** @type {string} */ label, /** @type {string} */ placeholder) =>
      textField(view[name], (value) => {
        view[name] = value || (name === "start" ? "1h-ago" : "");
        // The bar stays as it is: the key that ended the entry moves the focus on from here.
        mark();
        this.changed();
      }, { "aria-label": label, placeholder, title: "2h-ago, 2026/01/31, 2026/01/31-12:00:00, or seconds since 1970", id: `time-${name}` });
    const quick = RANGES.map((range) =>
      button(range, () => {
        view.start = `${range}-ago`;
        view.end = "";
        this.renderTimeBar();
        this.saveLink(true);
        this.run();
      }, { "data-range": range }),
    );
    const mark = () => {
      for (const choice of quick) {
        choice.setAttribute("aria-pressed", String(view.start === `${choice.dataset["range"]}-ago` && view.end === ""));
      }
    };
    mark();
    const zone = textField(view.zone, (value) => {
      const known = value === "" || isZone(value);
      zone.setAttribute("aria-invalid", String(!known));
      if (known) {
        view.zone = value === localZone() ? "" : value;
        this.changed();
      }
    }, { class: "zone", list: "zones", "aria-label": "Time zone", placeholder: localZone() });
    fill(
      this.timeBar,
      el("span", { class: "segment", role: "group", "aria-label": "Recent" }, quick),
      time("start", "Start", "1h-ago"),
      el("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      time("end", "End", "now"),
      zone,
      el("datalist", { id: "zones" }, zoneNames().map((name) => el("option", { value: name }))),
      el(
        "span",
        { class: "segment", role: "group", "aria-label": "Move the range" },
        button("‹", () => pan(this.chart, -0.5), { class: "icon", "aria-label": "Earlier" }),
        button("−", () => zoom(this.chart, 2, null), { class: "icon", "aria-label": "Zoom out", id: "zoom-out" }),
        button("+", () => zoom(this.chart, 0.5, null), { class: "icon", "aria-label": "Zoom in", id: "zoom-in" }),
        button("›", () => pan(this.chart, 0.5), { class: "icon", "aria-label": "Later" }),
      ),
      el("label", { class: "row" }, el("span", { class: "dim" }, "Refresh"), select(REFRESHES, String(view.refresh), (value) => {
        view.refresh = Number(value);
        this.saveLink(false);
        this.run();
      })),
    );
  }

  renderAxisFields() {
    const { view } = this;
    const edited = () => {
      this.saveLink(false);
      this.showResult();
    };
    const axisRow = (/** @type {Axis} */ axis, /** @type {string} */ name) => {
      const bound = (/** @type {"min" | "max"} */ which) =>
        textField(axis[which] === null ? "" : String(axis[which]), (value) => {
          axis[which] = value !== "" && Number.isFinite(Number(value)) ? Number(value) : null;
          edited();
        }, { placeholder: "auto", inputmode: "decimal" });
      return el(
        "div",
        { class: "grid4" },
        field(`${name}: label`, textField(axis.label, (value) => {
          axis.label = value;
          edited();
        })),
        field("from", bound("min")),
        field("to", bound("max")),
        field("scale", select([["linear", "linear"], ["log", "log"]], axis.log ? "log" : "linear", (value) => {
          axis.log = value === "log";
          edited();
        })),
      );
    };
    fill(
      this.axisFields,
      el(
        "details",
        { open: view.axes.some((axis) => axis.log || axis.label || axis.min !== null || axis.max !== null) || view.title !== "" },
        el("summary", null, "Axes and drawing"),
        el(
          "div",
          { class: "stack" },
          field("Title", textField(view.title, (value) => {
            view.title = value;
            edited();
          })),
          axisRow(view.axes[0], "Left"),
          axisRow(view.axes[1], "Right"),
          el(
            "div",
            { class: "row" },
            check("join gaps", view.joinGaps, (value) => {
              view.joinGaps = value;
              edited();
            }, "Draw lines across times without points"),
            check("global annotations", view.globals, (value) => {
              view.globals = value;
              this.changed();
            }),
          ),
        ),
      ),
    );
  }

  /** Sends the query of the view; an earlier one that still runs is cancelled. */
  run() {
    clearTimeout(this.settle);
    clearTimeout(this.refresh);
    this.running?.abort();
    this.running = null;
    const { view } = this;
    document.title = view.title ? `${view.title} – Saltern` : "Saltern";
    const range = rangeOf(view, Date.now());
    if (typeof range === "string") {
      fill(this.problems, problemBox(new Error(range), "Time range"));
      return;
    }
    if (!asks(view)) {
      this.result = { series: [], annotations: [], summary: null };
      this.responses.clear();
      fill(this.problems);
      this.setBusy(false);
      this.showResult();
      void this.showEmpty();
      return;
    }
    this.hideEmpty();
    const running = new AbortController();
    this.running = running;
    this.mark = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
    this.setBusy(true);
    void this.send(requestsOf(view, range, this.chart.plotWidth()), running, performance.now());
  }

  /**
   * @param {QueryRequest[]} requests
   * @param {AbortController} running
   * @param {number} began
   */
  async send(requests, running, began) {
    const headers = { [REQUEST_HEADER]: this.mark };
    const sent = requests.map(({ path, body }) => callText(path, { body, signal: running.signal, headers }));
    const settled = await Promise.allSettled(sent);
    if (this.running !== running) {
      return;
    }
    const roundTrip = performance.now() - began;
    this.running = null;
    this.setBusy(false);
    /** @type {HTMLElement[]} */
    const problems = [];
    /** @type {QueryResult} */
    const result = { series: [], annotations: [], summary: null };
    this.responses.clear();
    settled.forEach((outcome, index) => {
      const request = requests[index];
      if (!request) {
        return;
      }
      try {
        if (outcome.status === "rejected") {
          throw outcome.reason;
        }
        const read = readResponse(request.kind, JSON.parse(outcome.value), this.view);
        this.responses.set(request.kind, outcome.value);
        // Too many for the arguments of one call of `push`.
        result.series = result.series.concat(read.series);
        result.annotations = result.annotations.concat(read.annotations);
        result.summary = result.summary ?? read.summary;
      } catch (error) {
        problems.push(problemBox(error, WHAT[request.kind]));
      }
    });
    fill(this.problems, problems);
    this.setResult(result);
    const plain = requests.find(({ kind }) => kind === "query") ?? null;
    this.cost.show(this.result.summary, plain, roundTrip);
    this.showStatus(roundTrip);
    this.planRefresh();
  }

  planRefresh() {
    clearTimeout(this.refresh);
    const { refresh, end } = this.view;
    if (refresh > 0 && isRelative(end) && this.isShown) {
      this.refresh = setTimeout(() => (document.hidden ? this.planRefresh() : this.run()), refresh * 1000);
    }
  }

  /** @param {QueryResult} result */
  setResult(result) {
    result.series.forEach((series, index) => {
      series.color = index;
      series.hidden = this.hidden.has(series.key);
    });
    this.result = result;
    this.showResult();
  }

  /** Draws the result, for example after an axis was changed. */
  showResult() {
    const { view, result } = this;
    const range = rangeOf(view, Date.now());
    const now = typeof range === "string" ? { startMs: Date.now() - 36e5, endMs: Date.now(), zone: localZone() } : range;
    const isTable = view.show === "table";
    this.chartPanel.hidden = isTable;
    this.points.element.hidden = !isTable;
    for (const [id, pressed] of /** @type {const} */ ([["as-chart", !isTable], ["as-table", isTable]])) {
      this.stage.querySelector(`#${id}`)?.setAttribute("aria-pressed", String(pressed));
    }
    if (isTable) {
      this.points.show(result.series, now.zone);
    } else {
      this.chart.show({
        series: result.series,
        annotations: result.annotations,
        start: now.startMs,
        end: now.endMs,
        zone: now.zone,
        axes: view.axes,
        joinGaps: view.joinGaps,
      });
    }
    const points = result.series.reduce((sum, series) => sum + series.times.length, 0);
    this.chart.setNote(points || this.running ? "" : asks(view) ? "No points in this time range" : "Choose a metric");
    this.legend.show(result.series);
    this.annotations.show(result.annotations, result.series, now.zone);
    this.legendPanel.hidden = result.series.length === 0;
    if (!result.summary) {
      this.cost.show(null, null, 0);
    }
  }

  /** @param {number} roundTrip */
  showStatus(roundTrip) {
    const { series, annotations } = this.result;
    const points = series.reduce((sum, one) => sum + one.times.length, 0);
    fill(
      this.status,
      el("span", null, `${count(series.length)} series, ${plural(points, "point")} in ${duration(roundTrip)}`),
      annotations.length ? el("span", null, plural(annotations.length, "annotation")) : null,
    );
  }

  hiddenChanged() {
    for (const series of this.result.series) {
      if (series.hidden) {
        this.hidden.add(series.key);
      } else {
        this.hidden.delete(series.key);
      }
    }
    this.chart.repaint();
    if (this.view.show === "table") {
      this.showResult();
    }
  }

  /** @param {boolean} on */
  setBusy(on) {
    this.busy.classList.toggle("on", on);
    this.cancelButton.hidden = !on;
    this.element.setAttribute("aria-busy", String(on));
  }

  cancel() {
    const { mark } = this;
    this.running?.abort();
    this.running = null;
    this.setBusy(false);
    fill(this.problems, el("div", { class: "problem", role: "alert" }, el("strong", null, "Cancelled")));
    // The daemon cancels a query whose client is gone. A proxy may keep its connection, though.
    setTimeout(() => cancelMarked(mark).catch(() => {}), 300);
  }

  /** @param {"chart" | "table"} show */
  setShow(show) {
    this.view.show = show;
    this.saveLink(false);
    this.showResult();
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  setRange(start, end) {
    const zone = this.view.zone || localZone();
    this.view.start = timeExpression(start, zone);
    this.view.end = timeExpression(end, zone);
    this.renderTimeBar();
    this.saveLink(true);
    clearTimeout(this.settle);
    this.settle = setTimeout(() => this.run(), SETTLE_MS);
  }

  /** The time that was chosen in the chart; without one the present. */
  chosenTime() {
    const { chosen, data } = this.chart;
    return chosen !== null && chosen >= data.start && chosen <= data.end ? chosen : Date.now();
  }

  /**
   * @param {number} ms
   * @param {Annotation | null} annotation
   */
  annotate(ms, annotation) {
    annotationDialog({
      ms,
      zone: this.view.zone || localZone(),
      series: this.result.series,
      annotation,
      onStored: () => this.run(),
    });
  }

  async showEmpty() {
    let names;
    try {
      names = await suggest("metrics", "", 1);
    } catch (error) {
      fill(this.problems, problemBox(error));
      return;
    }
    if (names.length || !this.isShown || asks(this.view)) {
      return;
    }
    fill(
      this.empty,
      emptyState((metric) => void this.showFirst(metric)),
    );
    this.empty.hidden = false;
    this.chartPanel.hidden = true;
    this.exports.hidden = true;
    fill(this.status);
  }

  /**
   * Draws the first metric of a store, a line for each series if these are few.
   *
   * @param {string} metric
   */
  async showFirst(metric) {
    const view = newView();
    view.start = "15m-ago";
    view.refresh = 1;
    const sub = { ...newSub(), metric };
    try {
      const { tags } = await tagsOf(metric);
      const keys = [...tags].filter(([, values]) => values.size <= 20).slice(0, 3);
      sub.filters = keys.map(([tagk]) => ({ tagk, type: "wildcard", filter: "*", groupBy: true }));
    } catch {
      // One line is enough.
    }
    view.subs = [sub];
    this.setView(view, false);
  }

  hideEmpty() {
    this.empty.hidden = true;
    fill(this.empty);
    this.exports.hidden = false;
    this.chartPanel.hidden = this.view.show === "table";
  }

  exportPng() {
    this.chart.picture(this.view.title).toBlob((blob) => {
      if (blob) {
        download("chart.png", blob);
      }
    }, "image/png");
  }

  /** @param {"csv" | "json"} form */
  exportText(form) {
    if (form === "csv") {
      const shown = this.result.series.filter((series) => !series.hidden);
      download("points.csv", new Blob([csvOf(shown)], { type: "text/csv" }));
    } else {
      download("points.json", new Blob([jsonOf(this.responses)], { type: "application/json" }));
    }
  }

  async copyLink() {
    this.saveLink(false);
    try {
      await navigator.clipboard.writeText(location.href);
      fill(this.status, "The link was copied");
    } catch {
      // Browsers allow it over TLS and on loopback only.
      fill(this.status, el("span", null, "The link is the address of this page: ", el("code", null, location.href)));
    }
  }
}

/** What failed, by the kind of a request. @type {Record<QueryRequest["kind"], string>} */
const WHAT = { query: "Query", exp: "Expressions", gexp: "Functions" };
