/** @file The view with queries and chart: keeps the view, its link and the results in step. */

import { setAddress } from "./address.js";
import { AnnotationList, annotationDialog } from "./annotate.js";
import { callText, searchNames, tagsOf } from "./api.js";
import { axisForm } from "./axis_form.js";
import { Chart, colorOf } from "./chart.js";
import { pan, zoom } from "./chart_input.js";
import { CostPanel, REQUEST_HEADER, cancelMarked, problemBox } from "./cost.js";
import { button, commitFocused, copyText, download, el, fill, keepFocus, selectableText } from "./dom.js";
import { emptyState } from "./empty.js";
import { csvOf, fileName, jsonOf } from "./export.js";
import { count, duration, plural } from "./format.js";
import { hiddenOf, markHidden } from "./hidden.js";
import { parseLink, renderLink } from "./link.js";
import { MOST_LISTED, metricList } from "./metric_list.js";
import { QueryForm, intervalList } from "./query_form.js";
import { rangeOf, requestsOf } from "./request.js";
import { readResponse } from "./result.js";
import { Legend, PointTable } from "./table.js";
import { instantText, isRelative, zonedTime } from "./time.js";
import { TimeBar } from "./time_bar.js";
import { asks, newSub, newView } from "./view.js";
import { pageZone, useZone } from "./zone.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./result.js").Annotation} Annotation */
/** @typedef {import("./result.js").QueryResult} QueryResult */
/** @typedef {import("./request.js").QueryRequest} QueryRequest */
/** @typedef {import("./query_form.js").Vocabulary} Vocabulary */

/** Pause after a change before the query is sent, so that several changes cause one query. */
const SETTLE_MS = 150;

export class GraphView {
  /** @param {Vocabulary} vocabulary */
  constructor(vocabulary) {
    this.view = newView();
    /** @type {QueryResult} */
    this.result = { series: [], annotations: [], summary: null };
    /** Unparsed responses, by kind. @type {Map<string, string>} */
    this.responses = new Map();
    /** Time of the last run, the base of its relative times. */
    this.ranAt = Date.now();
    /** Unreadable parameters of the link. @type {string[]} */
    this.linkProblems = [];
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
      (order) => {
        this.view.order = order;
        this.saveLink(false);
      },
    );
    this.annotations = new AnnotationList((annotation) => this.annotate(annotation.startMs, annotation));
    this.points = new PointTable((page) => {
      this.view.page = page;
      this.saveLink(false);
    });
    this.cost = new CostPanel();
    this.timeBar = new TimeBar(this.view, {
      onEdited: () => this.changed(),
      onChosen: () => {
        this.saveLink(true);
        this.run();
      },
      onRefresh: () => {
        this.saveLink(false);
        this.run();
      },
      onPan: (share) => pan(this.chart, share),
      onZoom: (factor) => zoom(this.chart, factor, null),
    });
    this.busy = el("div", { class: "busy" });
    this.problems = el("div", { class: "stack" });
    this.status = el("div", { class: "status-line", role: "status" });
    this.axisFields = el("div", { class: "stack" });
    this.chartPanel = el("div", { class: "panel" }, this.chart.element);
    this.legendPanel = el("div", { class: "panel" }, this.legend.element);
    this.runButton = button("Run", () => this.runEntered(), { class: "primary", id: "run", title: "Run the query (Ctrl+Enter)" });
    this.cancelButton = button("Cancel", () => this.cancel(), { class: "danger", id: "cancel", hidden: true });
    this.empty = el("div", { hidden: true });
    this.stage = el("div", { class: "stage" });
    this.exports = el("span", { class: "row end" });
    this.liveLink = button("Copy live link", () => void this.copyLink(this.view), {
      title: "A link whose range moves on with the time, as the address bar has it",
      id: "copy-live",
    });
    this.formButton = button("Query", () => this.showForm(!this.element.classList.contains("with-form")), { class: "form-button", "aria-expanded": "false" });
    this.element = this.layOut();
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        this.runEntered();
      }
    });
  }

  /** Runs the query with the text of the focused field. */
  runEntered() {
    commitFocused();
    this.run();
  }

  /** @returns {HTMLElement} */
  layOut() {
    const side = el(
      "aside",
      { class: "side", "aria-label": "Query" },
      el("div", { class: "bar" }, this.runButton, this.cancelButton, this.formButton, button("Clear", () => this.setView(newView(), true), { class: "quiet end" })),
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
      button("Copy link", () => void this.copyLink(this.frozen()), { title: "A link to exactly this time range" }),
      this.liveLink,
    );
    fill(
      this.stage,
      this.timeBar.element,
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
    useZone(view.zone);
    this.renderForms();
    this.linkProblems = problems;
    this.showForm(!asks(view));
    if (!problems.length) {
      // Replaces an old link by its current form, for users who copy it from the address bar.
      this.saveLink(false);
    }
    this.points.element.hidden = view.show !== "table";
    this.chartPanel.hidden = view.show === "table";
    this.legendPanel.hidden = this.result.series.length === 0;
    this.cost.element.hidden = !this.result.summary;
    this.run();
  }

  /** @returns {string} */
  link() {
    return renderLink({ ...this.view, zone: pageZone() });
  }

  /** Handles a change of the page's zone: the same instants get other texts. */
  zoneChanged() {
    commitFocused();
    this.view.zone = pageZone();
    this.timeBar.setView(this.view);
    this.saveLink(false);
    this.run();
  }

  /**
   * Shows the form of the query on narrow screens, where the chart comes first.
   *
   * @param {boolean} on
   */
  showForm(on) {
    this.element.classList.toggle("with-form", on);
    this.formButton.setAttribute("aria-expanded", String(on));
  }

  /** Stops timers and requests while another view is shown. */
  close() {
    this.isShown = false;
    clearTimeout(this.settle);
    clearTimeout(this.refresh);
    this.running?.abort();
  }

  /**
   * @param {View} view
   * @param {boolean} push true if a step back leads to the previous view
   */
  setView(view, push) {
    this.view = view;
    this.linkProblems = [];
    this.renderForms();
    this.saveLink(push);
    this.run();
  }

  renderForms() {
    const { view } = this;
    this.form.setView(view);
    this.timeBar.setView(view);
    this.legend.order = view.order;
    this.points.page = view.page;
    const form = axisForm(view, {
      onDrawing: () => {
        this.saveLink(false);
        this.showResult();
      },
      onQuery: () => this.changed(),
    });
    keepFocus(this.axisFields, () => fill(this.axisFields, form));
  }

  /** Handles an edit of the view. */
  changed() {
    this.linkProblems = [];
    this.saveLink(false);
    this.runSoon();
  }

  /** Sends the query after a pause. */
  runSoon() {
    clearTimeout(this.settle);
    // A field that loses the focus to another view reports its text only after the change of views.
    if (this.isShown) {
      this.element.setAttribute("aria-busy", "true");
      this.settle = setTimeout(() => this.run(), SETTLE_MS);
    }
  }

  /** @param {boolean} push */
  saveLink(push) {
    if (this.isShown) {
      setAddress(this.link(), push);
    }
  }

  /** Sends the query of the view, and cancels an earlier query that still runs. */
  run() {
    clearTimeout(this.settle);
    clearTimeout(this.refresh);
    this.running?.abort();
    this.running = null;
    const { view } = this;
    document.title = view.title ? `${view.title} – Saltern` : "Saltern";
    this.ranAt = Date.now();
    const range = rangeOf(view, this.ranAt);
    if (typeof range === "string") {
      this.setBusy(false);
      this.showProblems([problemBox(new Error(range), "Time range")]);
      return;
    }
    if (!asks(view)) {
      this.result = { series: [], annotations: [], summary: null };
      this.responses.clear();
      this.showProblems([]);
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
        // A result may have more series than a call of `push` takes arguments.
        result.series = result.series.concat(read.series);
        result.annotations = result.annotations.concat(read.annotations);
        result.summary = result.summary ?? read.summary;
      } catch (error) {
        problems.push(problemBox(error, WHAT[request.kind]));
      }
    });
    this.showProblems(problems);
    this.setResult(result);
    const plain = requests.find(({ kind }) => kind === "query") ?? null;
    this.cost.show(this.result.summary, plain, roundTrip);
    this.showStatus(roundTrip);
    this.planRefresh();
  }

  /** @param {HTMLElement[]} problems of the query */
  showProblems(problems) {
    fill(this.problems, this.linkProblems.map((problem) => problemBox(new Error(problem), "Link")), problems);
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
    });
    markHidden(result.series, this.view.hidden);
    this.result = result;
    this.showResult();
  }

  /** Draws the result, for example after a change of an axis. */
  showResult() {
    const { view, result } = this;
    const range = rangeOf(view, Date.now());
    const now = typeof range === "string" ? { startMs: Date.now() - 36e5, endMs: Date.now(), zone: view.zone } : range;
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
    this.liveLink.hidden = !isRelative(view.start) && !isRelative(view.end);
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
    this.view.hidden = hiddenOf(this.result.series, this.view.hidden);
    this.saveLink(false);
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
    // The daemon cancels a query whose client disconnects, but a proxy may keep its connection open.
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
    // The bar is rendered again, and a gesture on the chart leaves the focus in its field.
    commitFocused();
    this.view.start = instantText(start);
    this.view.end = instantText(end);
    this.timeBar.setView(this.view);
    this.saveLink(true);
    this.runSoon();
  }

  /** Returns the time chosen in the chart, or else the current time. */
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
      zone: this.view.zone,
      series: this.result.series,
      annotation,
      onStored: () => this.run(),
    });
  }

  async showEmpty() {
    let found;
    try {
      found = await searchNames("metrics", "", MOST_LISTED);
    } catch (error) {
      fill(this.problems, problemBox(error));
      return;
    }
    if (!this.isShown || asks(this.view)) {
      return;
    }
    fill(
      this.empty,
      found.matching ? metricList(found, (metric) => void this.choose(metric)) : emptyState((metric) => void this.showFirst(metric)),
    );
    this.empty.hidden = false;
    this.chartPanel.hidden = true;
    this.exports.hidden = true;
    fill(this.status);
  }

  /**
   * Draws the first metric of a store, with a line for each series if there are few.
   *
   * @param {string} metric
   */
  async showFirst(metric) {
    const focused = document.activeElement;
    if (asks(this.view) || (focused instanceof HTMLInputElement && focused.value !== "" && this.element.contains(focused))) {
      // Rendering the form again would lose the text being entered.
      return;
    }
    const subs = [await subOf(metric)];
    this.setView({ ...newView(), start: "15m-ago", refresh: 1, subs }, false);
  }

  /**
   * Draws a metric of the list.
   *
   * @param {string} metric
   */
  async choose(metric) {
    const subs = [await subOf(metric)];
    this.setView({ ...this.view, subs }, true);
  }

  hideEmpty() {
    this.empty.hidden = true;
    fill(this.empty);
    this.exports.hidden = false;
    this.chartPanel.hidden = this.view.show === "table";
  }

  /** @param {string} extension */
  fileName(extension) {
    return fileName(this.view, rangeOf(this.view, this.ranAt), extension);
  }

  exportPng() {
    this.chart.picture(this.view.title).toBlob((blob) => {
      if (blob) {
        download(this.fileName("png"), blob);
      }
    }, "image/png");
  }

  /** @param {"csv" | "json"} form */
  exportText(form) {
    if (form === "csv") {
      const shown = this.result.series.filter((series) => !series.hidden);
      download(this.fileName("csv"), new Blob([csvOf(shown, this.view.zone)], { type: "text/csv" }));
    } else {
      download(this.fileName("json"), new Blob([jsonOf(this.responses)], { type: "application/json" }));
    }
  }

  /** @returns {View} the view with the range of the last run in place of relative times */
  frozen() {
    const range = rangeOf(this.view, this.ranAt);
    if (typeof range === "string" || (!isRelative(this.view.start) && !isRelative(this.view.end))) {
      return this.view;
    }
    return { ...this.view, start: instantText(range.startMs), end: instantText(range.endMs), refresh: 0 };
  }

  /**
   * Copies a link and tells the user what it shows.
   *
   * @param {View} view
   */
  async copyLink(view) {
    const link = `${location.href.split("#")[0]}#${renderLink(view)}`;
    const text = (/** @type {string} */ time) => (isRelative(time) ? time || "now" : zonedTime(Number.parseInt(time, 10), view.zone));
    const range = `${text(view.start)} to ${text(view.end)}`;
    const moves = isRelative(view.start) || isRelative(view.end);
    const shows = moves ? `Its range moves with the time: ${range}.` : `Its range is fixed: ${range}.`;
    const copied = await copyText(link);
    fill(this.status, el("span", null, copied ? "The link was copied. " : "This browser does not copy: select the link. ", shows));
    if (!copied) {
      const shown = selectableText(link, "Link to this view");
      this.status.append(shown);
      shown.focus();
    }
  }
}

/**
 * Returns a sub query of a metric, with a line for each series if there are few.
 *
 * @param {string} metric
 * @returns {Promise<import("./view.js").SubQuery>}
 */
async function subOf(metric) {
  const sub = { ...newSub(), metric };
  try {
    const { tags } = await tagsOf(metric);
    const keys = [...tags].filter(([, values]) => values.size <= 20).slice(0, 3);
    sub.filters = keys.map(([tagk]) => ({ tagk, type: "wildcard", filter: "*", groupBy: true }));
  } catch {
    // One line for all series is enough.
  }
  return sub;
}

/** Label of a failed request, by its kind. @type {Record<QueryRequest["kind"], string>} */
const WHAT = { query: "Query", exp: "Expressions", gexp: "Functions" };
