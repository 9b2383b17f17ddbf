/**
 * @file Links to views: the part of the address after `#`.
 *
 * The parameters are OpenTSDB's, from its page and `/q` (`start`, `end`, `m`, `o`, `yrange`, `ylog`, `key`, ...), so that links to
 * that page work. Further parameters cover the rest: `q` is the JSON of a sub query that `m` cannot express, `e` the JSON of an
 * expression. A link shows the same in every browser: times are instants unless they are relative, and the link names the zone.
 */

import { orderText, readOrder } from "./table.js";
import { isZone, settledTime } from "./time.js";
import { STYLES, newAxis, newSub, newView } from "./view.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").SubQuery} SubQuery */
/** @typedef {import("./view.js").Expression} Expression */
/** @typedef {import("./view.js").Axis} Axis */

/** Characters that separate the fields of an `m`. */
const SPECIAL = /[:{}(),=]/;

/**
 * Renders a sub query as an `m` parameter; null if `m` cannot express it.
 *
 * @param {SubQuery} sub
 * @returns {string | null}
 */
export function renderM(sub) {
  const parts = [sub.aggregator];
  if (sub.interval !== "none") {
    parts.push([sub.interval, sub.fn, ...(sub.fill === "none" ? [] : [sub.fill])].join("-"));
  }
  if (sub.rate) {
    parts.push(renderRate(sub));
  }
  if (sub.rollup) {
    parts.push(sub.rollup.toLowerCase());
  }
  if (sub.percentiles) {
    parts.push(`percentiles[${sub.percentiles}]`);
  }
  if (sub.showBuckets) {
    parts.push("show-histogram-buckets");
  }
  if (sub.explicitTags) {
    parts.push("explicit_tags");
  }
  if (sub.preAggregate) {
    parts.push("pre-agg");
  }
  const braces = (/** @type {boolean} */ groupBy) =>
    sub.filters
      .filter((filter) => filter.groupBy === groupBy)
      .map((filter) => `${filter.tagk}=${renderFilter(filter.type, filter.filter)}`);
  const grouping = braces(true);
  const filtering = [...braces(false), ...sub.valueFilters.map((filter) => `value=${filter.type}(${filter.filter})`)];
  let metric = sub.metric;
  if (grouping.length || filtering.length) {
    metric += `{${grouping.join(",")}}`;
  }
  if (filtering.length) {
    metric += `{${filtering.join(",")}}`;
  }
  const text = [...parts, metric].join(":");
  // The daemon accepts at most five fields.
  if (sub.tsuids || parts.length > 4) {
    return null;
  }
  const { axis, style, off } = sub;
  const read = parseM(text);
  return read && JSON.stringify({ ...read, axis, style, off }) === JSON.stringify(sub) ? text : null;
}

/**
 * @param {SubQuery} sub
 * @returns {string}
 */
function renderRate(sub) {
  if (!sub.counter && !sub.dropResets && !sub.counterMax && !sub.resetValue) {
    return "rate";
  }
  const parts = [sub.dropResets ? "dropcounter" : sub.counter ? "counter" : "", sub.counterMax, sub.resetValue];
  while (parts.length > 1 && parts[parts.length - 1] === "") {
    parts.pop();
  }
  return `rate{${parts.join(",")}}`;
}

/**
 * @param {string} type
 * @param {string} filter
 * @returns {string}
 */
function renderFilter(type, filter) {
  if (type === "wildcard" && filter === "*") {
    return "*";
  }
  if (type === "literal_or" && !SPECIAL.test(filter) && !filter.includes("*")) {
    return filter;
  }
  return `${type}(${filter})`;
}

/**
 * Parses an `m` parameter by the daemon's rules; null if it is invalid.
 *
 * @param {string} text
 * @returns {SubQuery | null}
 */
export function parseM(text) {
  const parts = text.split(":");
  const metric = parts.pop();
  const aggregator = parts.shift();
  if (metric === undefined || !aggregator) {
    return null;
  }
  const sub = newSub();
  sub.aggregator = aggregator;
  sub.interval = "none";
  for (const part of parts) {
    readOption(part, sub);
  }
  const brace = metric.indexOf("{");
  if (brace < 0) {
    sub.metric = metric;
    return sub;
  }
  if (!metric.endsWith("}")) {
    return null;
  }
  sub.metric = metric.slice(0, brace);
  const inside = metric.slice(brace + 1, -1);
  const between = inside.indexOf("}");
  const grouping = between < 0 ? inside : inside.slice(0, between);
  const filtering = between < 0 ? "" : inside.slice(inside.lastIndexOf("{") + 1);
  return readEntries(grouping, true, sub) && readEntries(filtering, false, sub) ? sub : null;
}

/**
 * @param {string} part
 * @param {SubQuery} sub
 */
function readOption(part, sub) {
  const lower = part.toLowerCase();
  if (lower.startsWith("rate")) {
    sub.rate = true;
    const inner = /\{(.*)\}$/.exec(part)?.[1]?.split(",") ?? [];
    sub.dropResets = inner[0] === "dropcounter";
    sub.counter = inner[0] === "counter";
    sub.counterMax = inner[1] ?? "";
    sub.resetValue = inner[2] ?? "";
  } else if (/^\d/.test(lower) || lower.startsWith("auto-")) {
    const [interval, fn, fill] = part.split("-");
    sub.interval = interval ?? "none";
    sub.fn = fn ?? "avg";
    sub.fill = fill ?? "none";
  } else if (lower.startsWith("percentiles")) {
    sub.percentiles = /\[(.*?)\]/.exec(part)?.[1] ?? "";
  } else if (lower.startsWith("show-histogram-buckets")) {
    sub.showBuckets = true;
  } else if (lower.startsWith("rollup_")) {
    sub.rollup = part.toUpperCase();
  } else if (lower.startsWith("explicit_tags")) {
    sub.explicitTags = true;
  } else if (lower.startsWith("pre-agg")) {
    sub.preAggregate = true;
  }
}

/**
 * @param {string} text
 * @param {boolean} groupBy
 * @param {SubQuery} sub
 * @returns {boolean}
 */
function readEntries(text, groupBy, sub) {
  if (text === "") {
    return true;
  }
  const pieces = text.split(",");
  for (let at = 0; at < pieces.length; at += 1) {
    let entry = pieces[at] ?? "";
    // The comma between the bounds of a value range does not separate entries.
    if (/^value=(between|outside)\([^)]*$/i.test(entry) && at + 1 < pieces.length) {
      at += 1;
      entry += `,${pieces[at] ?? ""}`;
    }
    const equals = entry.indexOf("=");
    const tagk = entry.slice(0, equals);
    const expr = entry.slice(equals + 1);
    if (equals < 1 || expr === "") {
      return false;
    }
    const value = /^(gt|ge|lt|le|eq|ne|between|outside)\((.*)\)$/i.exec(expr);
    if (tagk === "value" && value) {
      sub.valueFilters.push({ type: (value[1] ?? "").toLowerCase(), filter: (value[2] ?? "").trim() });
      continue;
    }
    const typed = /^([^(]*)\((.*)\)$/.exec(expr);
    if (expr === "*") {
      sub.filters.push({ tagk, type: "wildcard", filter: "*", groupBy });
    } else if (typed) {
      sub.filters.push({ tagk, type: (typed[1] ?? "").toLowerCase(), filter: typed[2] ?? "", groupBy });
    } else {
      sub.filters.push({ tagk, type: expr.includes("*") ? "iwildcard" : "literal_or", filter: expr, groupBy });
    }
  }
  return true;
}

/**
 * Renders a view as the part of a link after `#`.
 *
 * @param {View} view
 * @returns {string}
 */
export function renderLink(view) {
  /** @type {string[]} */
  const out = [];
  const put = (/** @type {string} */ name, /** @type {string} */ value) => out.push(`${name}=${escapeValue(value)}`);
  put("start", view.start);
  if (view.end) {
    put("end", view.end);
  }
  put("tz", view.zone);
  const options = view.subs.map(renderOptions);
  view.subs.forEach((sub, index) => {
    const m = sub.metric ? renderM(sub) : null;
    if (m) {
      put("m", m);
      if (options.some(Boolean)) {
        put("o", options[index] ?? "");
      }
    } else if (JSON.stringify(sub) !== JSON.stringify(newSub())) {
      put("q", changes(sub, newSub()));
    }
  });
  for (const expression of view.expressions) {
    put("e", JSON.stringify(expression));
  }
  view.axes.forEach((axis, index) => {
    const y = index === 0 ? "y" : "y2";
    if (axis.min !== null || axis.max !== null) {
      put(`${y}range`, `[${axis.min ?? ""}:${axis.max ?? ""}]`);
    }
    if (axis.log) {
      out.push(`${y}log`);
    }
    if (axis.label) {
      put(`${y}label`, axis.label);
    }
  });
  if (view.title) {
    put("title", view.title);
  }
  if (view.refresh) {
    put("autoreload", String(view.refresh));
  }
  if (view.joinGaps) {
    out.push("join");
  }
  if (!view.globals) {
    out.push("no_globals");
  }
  if (view.show === "table") {
    put("show", "table");
  }
  if (view.hidden.only || view.hidden.ids.length) {
    put(view.hidden.only ? "only" : "hide", view.hidden.ids.join(","));
  }
  if (view.order) {
    put("sort", orderText(view.order));
  }
  if (view.page) {
    put("page", String(view.page + 1));
  }
  return out.join("&");
}

/**
 * Escapes characters that would end a parameter or change in transit. The rest stays readable.
 *
 * @param {string} text
 * @returns {string}
 */
export function escapeValue(text) {
  return encodeURIComponent(text).replace(/%(?:2C|2F|3A|3D|40|5B|5D|7B|7C|7D|20)/g, (code) =>
    code === "%20" ? "+" : decodeURIComponent(code),
  );
}

/**
 * @param {SubQuery} sub
 * @returns {string}
 */
function renderOptions(sub) {
  const words = [];
  if (sub.axis === 2) {
    words.push("axis x1y2");
  }
  if (sub.style !== "line") {
    words.push(`style ${sub.style}`);
  }
  if (sub.off) {
    words.push("off");
  }
  return words.join(" ");
}

/**
 * Renders the fields of a sub query that differ from a new sub query.
 *
 * @param {SubQuery} sub
 * @param {SubQuery} from
 * @returns {string}
 */
function changes(sub, from) {
  const other = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (from));
  const changed = Object.entries(sub).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(other[name]));
  return JSON.stringify(Object.fromEntries(changed));
}

/**
 * Parses a link. Missing parameters are as in a new view. Unreadable parameters are skipped and reported.
 *
 * @param {string} text the part after `#`
 * @returns {{ view: View, problems: string[] }}
 */
export function parseLink(text) {
  const view = newView();
  /** @type {string[]} */
  const problems = [];
  /** @type {SubQuery[]} */
  const subs = [];
  /** @type {SubQuery[]} */
  const withOptions = [];
  let options = 0;
  for (const part of text.split("&")) {
    const equals = part.indexOf("=");
    const name = equals < 0 ? part : part.slice(0, equals);
    const value = unescape(equals < 0 ? "" : part.slice(equals + 1));
    if (name === "m") {
      const sub = parseM(value);
      if (sub) {
        subs.push(sub);
        withOptions.push(sub);
      } else {
        problems.push(`This is no sub query: ${value}`);
      }
    } else if (name === "tsuid") {
      const at = value.lastIndexOf(":");
      const sub = parseM(`${value.slice(0, at)}:x`);
      if (sub && at > 0) {
        subs.push({ ...sub, metric: "", tsuids: value.slice(at + 1) });
      }
    } else if (name === "o") {
      const sub = withOptions[options];
      options += 1;
      if (sub) {
        readOptions(value, sub);
      }
    } else if (name === "q" || name === "e") {
      readJson(name, value, subs, view.expressions, problems);
    } else {
      readSetting(name, value, view);
    }
  }
  if (subs.length) {
    view.subs = subs;
  }
  if (!isZone(view.zone)) {
    const { zone } = newView();
    problems.push(`This is no time zone: ${view.zone}. Times are read and shown in ${zone}.`);
    view.zone = zone;
  }
  // Must come last, since the zone may come after the times.
  view.start = settledTime(view.start, view.zone);
  view.end = settledTime(view.end, view.zone);
  return { view, problems };
}

/**
 * @param {string} text
 * @returns {string}
 */
function unescape(text) {
  const plain = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}

/**
 * @param {string} text
 * @param {SubQuery} sub
 */
function readOptions(text, sub) {
  if (/axis\s+x1y2/.test(text)) {
    sub.axis = 2;
  }
  const style = /style\s+(\w+)/.exec(text)?.[1];
  sub.style = STYLES.find((known) => known === style) ?? sub.style;
  if (/\boff\b/.test(text)) {
    sub.off = true;
  }
}

/**
 * @param {"q" | "e"} name
 * @param {string} text
 * @param {SubQuery[]} subs
 * @param {Expression[]} expressions
 * @param {string[]} problems
 */
function readJson(name, text, subs, expressions, problems) {
  try {
    const given = /** @type {unknown} */ (JSON.parse(text));
    if (name === "q") {
      subs.push(checked(given, newSub()));
    } else {
      expressions.push(checked(given, newExpression()));
    }
  } catch {
    problems.push(`This is no sub query: ${text}`);
  }
}

/** @returns {Expression} */
export function newExpression() {
  return { kind: "exp", text: "", join: "", axis: 1, style: "line" };
}

/**
 * Takes only fields whose types match the model, since anybody may have written the link.
 *
 * @template {object} T
 * @param {unknown} given
 * @param {T} model
 * @returns {T}
 */
function checked(given, model) {
  const from = /** @type {Record<string, unknown>} */ (given ?? {});
  const to = /** @type {Record<string, unknown>} */ (model);
  for (const [name, known] of Object.entries(model)) {
    const value = from[name];
    if (name === "filters" && Array.isArray(value)) {
      to[name] = value.map((filter) => checked(filter, { tagk: "", type: "literal_or", filter: "", groupBy: false }));
    } else if (name === "valueFilters" && Array.isArray(value)) {
      to[name] = value.map((filter) => checked(filter, { type: "gt", filter: "" }));
    } else if (name === "axis") {
      to[name] = value === 2 ? 2 : 1;
    } else if (name === "style") {
      to[name] = STYLES.find((style) => style === value) ?? "line";
    } else if (name === "kind") {
      to[name] = value === "gexp" ? "gexp" : "exp";
    } else if (typeof value === typeof known && !Array.isArray(known)) {
      to[name] = value;
    }
  }
  return model;
}

/**
 * @param {string} name
 * @param {string} value
 * @param {View} view
 */
function readSetting(name, value, view) {
  const second = name.startsWith("y2");
  /** @type {Axis} */
  const axis = view.axes[second ? 1 : 0] ?? newAxis();
  const number = (/** @type {string | undefined} */ text) => (text && Number.isFinite(Number(text)) ? Number(text) : null);
  switch (name.replace("y2", "y")) {
    case "start":
      view.start = value || view.start;
      break;
    case "end":
      view.end = value;
      break;
    case "tz":
    case "timezone":
      view.zone = value || view.zone;
      break;
    case "yrange": {
      const range = /^\[([^:]*):([^\]]*)\]$/.exec(value);
      axis.min = number(range?.[1]);
      axis.max = number(range?.[2]);
      break;
    }
    case "ylog":
      axis.log = true;
      break;
    case "ylabel":
      axis.label = value;
      break;
    case "title":
      view.title = value;
      break;
    case "autoreload": {
      const seconds = Number(value);
      view.refresh = seconds > 0 && seconds <= 86_400 ? seconds : 0;
      break;
    }
    case "join":
      view.joinGaps = true;
      break;
    case "no_globals":
      view.globals = false;
      break;
    case "show":
      view.show = value === "table" ? "table" : "chart";
      break;
    case "hide":
    case "only":
      view.hidden = { only: name === "only", ids: value.split(",").filter((id) => /^[0-9a-f]{8}$/.test(id)) };
      break;
    case "sort":
      view.order = readOrder(value);
      break;
    case "page":
      view.page = /^[1-9]\d{0,8}$/.test(value) ? Number(value) - 1 : 0;
      break;
    default:
      // Ignores sizes, keys and fonts of gnuplot.
      break;
  }
}
