/** @file The history of the daemon's own statistics, which it stores as points with `tsd.stats.self`. */

import { call, suggest } from "./api.js";
import { Chart } from "./chart.js";
import { panel } from "./poll.js";
import { makeSeries } from "./result.js";
import { newAxis } from "./view.js";
import { pageZone } from "./zone.js";

/** @typedef {{ tags: Record<string, string>, dps: Record<string, number | string | null> }} Answered */

/** Minimum interval of the queries. */
const INTERVAL_MS = 60_000;

/** Range of the charts. */
const RANGE_MS = 24 * 3600 * 1000;

/** Charts: title, statistic, and true for a counter. */
const CHARTS = /** @type {const} */ ([
  ["Points stored per second, last 24 hours", "tsd.datapoints.added", true],
  ["Memory in bytes, last 24 hours", "tsd.jvm.ramused", false],
]);

/**
 * Makes the panels of the history. They are hidden until the store has points of it.
 *
 * @returns {{ element: HTMLElement[], refresh: () => Promise<void> }}
 */
export function statsHistory() {
  const charts = CHARTS.map(([title, metric, isCounter]) => {
    const chart = new Chart({ onRange: () => {}, onAnnotate: () => {}, onAnnotation: () => {}, onNear: () => {} }, title);
    chart.element.classList.add("small");
    const element = panel(title, chart.element);
    element.hidden = true;
    return { chart, element, metric, isCounter };
  });
  let readAt = -Infinity;
  return {
    element: charts.map(({ element }) => element),
    refresh: async () => {
      if (performance.now() - readAt < INTERVAL_MS) {
        return;
      }
      readAt = performance.now();
      for (const { chart, element, metric, isCounter } of charts) {
        const [known] = await suggest("metrics", metric, 1);
        // Without the metric, a query would count as an error of this page.
        const answered = known === metric ? await history(metric, isCounter) : [];
        element.hidden = answered.length === 0;
        if (answered.length) {
          draw(chart, answered);
        }
      }
    },
  };
}

/**
 * @param {string} metric
 * @param {boolean} isCounter
 * @returns {Promise<Answered[]>}
 */
async function history(metric, isCounter) {
  const sub = {
    metric,
    aggregator: "sum",
    downsample: "5m-avg",
    rate: isCounter,
    ...(isCounter ? { rateOptions: { counter: true, dropResets: true } } : {}),
    tags: { host: "*" },
  };
  const body = { start: Date.now() - RANGE_MS, msResolution: true, noAnnotations: true, queries: [sub] };
  return /** @type {Answered[]} */ (await call("/api/query", { body }));
}

/**
 * @param {Chart} chart
 * @param {Answered[]} answered
 */
function draw(chart, answered) {
  const now = Date.now();
  chart.show({
    series: answered.map(({ tags, dps }, index) => {
      const points = Object.entries(dps)
        .map(([ms, value]) => /** @type {const} */ ([Number(ms), Number(value)]))
        .sort(([a], [b]) => a - b);
      const name = tags["host"] ?? "";
      const times = Float64Array.from(points, ([ms]) => ms);
      const values = Float64Array.from(points, ([, value]) => value);
      return { ...makeSeries({ where: name, name, tags: [], aggregated: [], tsuids: [], times, values, axis: 1, style: "line" }), color: index };
    }),
    annotations: [],
    start: now - RANGE_MS,
    end: now,
    zone: pageZone(),
    axes: [newAxis(), newAxis()],
    joinGaps: false,
  });
}
