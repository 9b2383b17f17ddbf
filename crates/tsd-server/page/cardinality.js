/** @file The view of the metrics and tags with the most series. */

import { ApiFailure, call, metricsWith } from "./api.js";
import { Chart } from "./chart.js";
import { comboBox } from "./complete.js";
import { button, el, fill, keepFocus, select } from "./dom.js";
import { count } from "./format.js";
import { panel, polled, tile } from "./poll.js";
import { makeSeries } from "./result.js";
import { sortableTable } from "./table.js";
import { newAxis } from "./view.js";

/**
 * @typedef {object} Cardinality
 * @property {boolean} complete
 * @property {number} metrics
 * @property {number} series
 * @property {{ metric: string, series: number }[]} topMetrics
 * @property {{ tagk: string, series: number, values: number }[]} topTagKeys
 * @property {{ tagk: string, tagv: string, series: number }[]} topTagPairs
 * @property {{ start: number, series: number }[]} activeSeries
 */

const DAY_MS = 86_400_000;

const LIMITS = ["10", "20", "50", "100", "500"];

const USUAL_LIMIT = "20";

/** @returns {import("./poll.js").PageView} */
export function cardinality() {
  let metric = "";
  let limit = USUAL_LIMIT;
  const result = el("div", { class: "stack page-body" });
  const chart = new Chart({ onRange: () => {}, onAnnotate: () => {}, onAnnotation: () => {}, onNear: () => {} }, "Active series by day");
  chart.element.classList.add("small");
  const again = () => view.again();
  const field = el("div", { class: "grow" });
  const choose = (/** @type {string} */ chosen) => {
    metric = chosen;
    fill(field, combo());
    // A step back leads to the list of metrics.
    view.save(true);
    again();
  };
  const combo = () =>
    comboBox({ value: metric, label: "Metric", placeholder: "all metrics", completions: metricsWith, onChange: choose });
  fill(field, combo());
  const limits = select(LIMITS, limit, (value) => {
    limit = value;
    view.save();
    again();
  });
  const head = el(
    "div",
    { class: "row" },
    field,
    el("label", { class: "row" }, el("span", { class: "dim" }, "Top"), limits),
    button("Read again", again),
  );
  const view = polled("/cardinality", el("div", { class: "stack page-body" }, head, result), 0, async () => {
    const parameters = new URLSearchParams({ limit, ...(metric ? { metric } : {}) });
    let counted;
    try {
      counted = /** @type {Cardinality} */ (await call(`/api/stats/cardinality?${parameters.toString()}`));
    } catch (error) {
      if (error instanceof ApiFailure && error.status === 400) {
        fill(result, el("p", { class: "dim" }, error.message), error.details ? el("p", { class: "dim" }, error.details) : null);
        return;
      }
      throw error;
    }
    fill(result, render(counted, chart, metric, choose));
  }, {
    write: () => ({ metric, limit: limit === USUAL_LIMIT ? "" : limit }),
    read: (state) => {
      metric = state.get("metric") ?? "";
      limit = LIMITS.find((known) => known === state.get("limit")) ?? USUAL_LIMIT;
      limits.value = limit;
      fill(field, combo());
    },
  });
  return view;
}

/**
 * @param {Cardinality} counted
 * @param {Chart} chart
 * @param {string} metric
 * @param {(metric: string) => void} choose
 * @returns {HTMLElement[]}
 */
function render(counted, chart, metric, choose) {
  const days = [...counted.activeSeries].sort((a, b) => a.start - b.start);
  const [first, last] = [days[0], days[days.length - 1]];
  const midnight = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const today = days.find(({ start }) => start * 1000 === midnight);
  const growth = first && last && first !== last ? last.series - first.series : null;
  const tiles = el(
    "div",
    { class: "tiles" },
    tile("Series", count(counted.series), metric || "of all metrics"),
    metric ? null : tile("Metrics", count(counted.metrics)),
    tile("Active today", count(today?.series ?? 0), "since midnight UTC"),
    growth === null ? null : tile("Growth of the active", `${growth >= 0 ? "+" : ""}${count(growth)}`, `over ${days.length} days with rows`),
    counted.complete ? null : tile("Index", "incomplete", "it is being built", "warn"),
  );
  if (first && last && first !== last) {
    chart.show({
      series: [
        {
          ...makeSeries({
            where: "active",
            name: "active series",
            tags: [],
            aggregated: [],
            tsuids: [],
            times: Float64Array.from(days, ({ start }) => start * 1000),
            values: Float64Array.from(days, ({ series }) => series),
            axis: 1,
            style: "area",
          }),
          // The response omits days without an active series.
          gap: DAY_MS,
        },
      ],
      annotations: [],
      start: first.start * 1000 - DAY_MS / 2,
      end: last.start * 1000 + DAY_MS / 2,
      zone: "UTC",
      axes: [newAxis(), newAxis()],
      joinGaps: false,
    });
  }
  return [
    tiles,
    ...(days.length > 1 ? [panel("Active series by day (UTC)", chart.element)] : []),
    el(
      "div",
      { class: "columns" },
      metric ? null : topPanel("Metrics", counted.topMetrics, [
        { label: "metric", class: "name", cell: (row) => button(row.metric, () => choose(row.metric), { class: "link" }), sort: (row) => row.metric },
        { label: "series", number: true, cell: (row) => count(row.series), sort: (row) => row.series },
      ]),
      topPanel("Tag keys", counted.topTagKeys, [
        { label: "tag key", class: "name", cell: (row) => row.tagk, sort: (row) => row.tagk },
        { label: "values", number: true, cell: (row) => count(row.values), sort: (row) => row.values },
        { label: "series", number: true, cell: (row) => count(row.series), sort: (row) => row.series },
      ]),
      topPanel("Tag values", counted.topTagPairs, [
        { label: "tag", class: "name", cell: (row) => `${row.tagk}=${row.tagv}`, sort: (row) => `${row.tagk}=${row.tagv}` },
        { label: "series", number: true, cell: (row) => count(row.series), sort: (row) => row.series },
      ]),
    ),
  ];
}

/**
 * @template T
 * @param {string} title
 * @param {T[]} rows
 * @param {import("./table.js").Column<T>[]} columns
 * @returns {HTMLElement}
 */
function topPanel(title, rows, columns) {
  const body = el("div", { class: "scroll" });
  /** @type {import("./table.js").Order} */
  let order = { column: columns.length - 1, descending: true };
  const show = () => keepFocus(body, () => fill(body, table()));
  const table = () =>
    sortableTable({
      label: title,
      rows,
      columns,
      order,
      onOrder: (changed) => {
        order = changed;
        show();
      },
    });
  show();
  return panel(title, body);
}
