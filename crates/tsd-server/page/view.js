/**
 * @file Content of a graph: sub queries, expressions, time range, axes and hidden series. A view is a plain value; `link.js` turns
 * it into a link and `request.js` into requests.
 */

import { nothingHidden } from "./hidden.js";
import { pageZone } from "./zone.js";

/** @typedef {{ tagk: string, type: string, filter: string, groupBy: boolean }} TagFilter */

/** @typedef {{ type: string, filter: string }} ValueFilter */

/** @typedef {"line" | "points" | "area" | "stack"} SeriesStyle */

/**
 * @typedef {object} SubQuery
 * @property {string} metric
 * @property {string} tsuids TSUIDs with commas, which replace metric and filters
 * @property {string} aggregator
 * @property {string} interval `auto`, `none`, or the interval of a downsampling
 * @property {string} fn aggregator of the downsampling
 * @property {string} fill fill policy of the downsampling
 * @property {boolean} rate
 * @property {boolean} counter
 * @property {string} counterMax
 * @property {string} resetValue
 * @property {boolean} dropResets
 * @property {TagFilter[]} filters
 * @property {ValueFilter[]} valueFilters
 * @property {boolean} explicitTags
 * @property {boolean} preAggregate
 * @property {string} percentiles percentiles of histograms with commas
 * @property {boolean} showBuckets
 * @property {string} rollup rollup usage; empty for the daemon's default
 * @property {1 | 2} axis
 * @property {SeriesStyle} style
 * @property {boolean} off not drawn; expressions may use it
 */

/**
 * @typedef {object} Expression
 * @property {"exp" | "gexp"} kind arithmetic over sub queries by their letters, or functions over series
 * @property {string} text
 * @property {string} join how series of several sub queries are joined: empty, `union` or `intersection`
 * @property {1 | 2} axis
 * @property {SeriesStyle} style
 */

/** @typedef {{ min: number | null, max: number | null, log: boolean, label: string }} Axis */

/**
 * @typedef {object} View
 * @property {string} start relative to the current time (`1h-ago`), or an instant in milliseconds
 * @property {string} end the same; empty for the current time
 * @property {string} zone name of the zone of shown times and of the beginning of days
 * @property {number} refresh refresh interval in seconds; 0 for no refresh
 * @property {SubQuery[]} subs
 * @property {Expression[]} expressions
 * @property {[Axis, Axis]} axes
 * @property {string} title
 * @property {boolean} joinGaps
 * @property {boolean} globals global annotations
 * @property {"chart" | "table"} show
 * @property {import("./hidden.js").Hidden} hidden
 * @property {import("./table.js").Order | null} order of the legend
 * @property {number} page of the table
 */

export const FILLS = ["none", "nan", "null", "zero"];

export const VALUE_FILTERS = ["gt", "ge", "lt", "le", "eq", "ne", "between", "outside"];

export const ROLLUPS = ["", "ROLLUP_NOFALLBACK", "ROLLUP_FALLBACK", "ROLLUP_FALLBACK_RAW", "ROLLUP_RAW"];

/** @type {SeriesStyle[]} */
export const STYLES = ["line", "points", "area", "stack"];

/** @returns {SubQuery} */
export function newSub() {
  return {
    metric: "",
    tsuids: "",
    aggregator: "sum",
    interval: "auto",
    fn: "avg",
    fill: "none",
    rate: false,
    counter: false,
    counterMax: "",
    resetValue: "",
    dropResets: false,
    filters: [],
    valueFilters: [],
    explicitTags: false,
    preAggregate: false,
    percentiles: "",
    showBuckets: false,
    rollup: "",
    axis: 1,
    style: "line",
    off: false,
  };
}

/** @returns {Axis} */
export function newAxis() {
  return { min: null, max: null, log: false, label: "" };
}

/** @returns {View} */
export function newView() {
  return {
    start: "1h-ago",
    end: "",
    zone: pageZone(),
    refresh: 0,
    subs: [newSub()],
    expressions: [],
    axes: [newAxis(), newAxis()],
    title: "",
    joinGaps: false,
    globals: true,
    show: "chart",
    hidden: nothingHidden(),
    order: null,
    page: 0,
  };
}

/**
 * Returns the letter of a sub query in expressions: a to z, then a1 to z1, and so on.
 *
 * @param {number} index
 * @returns {string}
 */
export function letter(index) {
  const round = Math.floor(index / 26);
  return String.fromCharCode(97 + (index % 26)) + (round ? String(round) : "");
}

/**
 * Returns true if a sub query names a metric or TSUIDs.
 *
 * @param {SubQuery} sub
 * @returns {boolean}
 */
export function isComplete(sub) {
  return sub.metric !== "" || sub.tsuids !== "";
}

/**
 * Returns true if a view has anything to request.
 *
 * @param {View} view
 * @returns {boolean}
 */
export function asks(view) {
  return view.subs.some((sub) => isComplete(sub) && !sub.off) || view.expressions.some((expression) => expression.text !== "");
}
