/** @file The form of a view's sub queries and expressions. Edits the view in place and reports each change. */

import { metricsWith, suggest, tagsOf } from "./api.js";
import { comboBox } from "./complete.js";
import { button, check, el, field, fill, keepFocus, select, textField } from "./dom.js";
import { newExpression } from "./link.js";
import { ROLLUPS, STYLES, VALUE_FILTERS, FILLS, letter, newSub } from "./view.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").SubQuery} SubQuery */
/** @typedef {import("./view.js").TagFilter} TagFilter */
/** @typedef {import("./view.js").Expression} Expression */

/** @typedef {{ aggregators: string[], filters: Map<string, string> }} Vocabulary names that the daemon supports */

const INTERVALS = ["auto", "none", "10s", "1m", "5m", "15m", "1h", "6h", "1d", "1dc", "1wc", "1nc", "0all"];

const JOINS = /** @type {const} */ ([
  ["", "as the daemon joins"],
  ["union", "union"],
  ["intersection", "intersection"],
]);

export class QueryForm {
  /**
   * @param {View} view
   * @param {Vocabulary} vocabulary
   * @param {() => void} onChange
   */
  constructor(view, vocabulary, onChange) {
    this.view = view;
    this.vocabulary = vocabulary;
    this.onChange = onChange;
    /** Cards whose further options are shown. @type {WeakSet<object>} */
    this.opened = new WeakSet();
    this.element = el("div", { class: "stack" });
    this.render();
  }

  /** @param {View} view */
  setView(view) {
    this.view = view;
    this.render();
  }

  /** Renders all cards. Called when their number changes, not while the user types. */
  render() {
    keepFocus(this.element, () => this.renderCards());
  }

  renderCards() {
    const { view } = this;
    fill(
      this.element,
      view.subs.map((sub, index) => this.subCard(sub, index)),
      view.expressions.map((expression, index) => this.expressionCard(expression, index)),
      el(
        "div",
        { class: "row" },
        button("+ Sub query", () => this.addSub(newSub()), { id: "add-sub" }),
        button("+ Expression", () => this.addExpression("exp"), { title: "Arithmetic over the sub queries: a / b * 100" }),
        button("+ Function", () => this.addExpression("gexp"), { title: "Functions over series: movingAverage(sum:…, 10)" }),
      ),
    );
  }

  /** @param {SubQuery} sub */
  addSub(sub) {
    this.view.subs.push(sub);
    this.render();
    /** @type {NodeListOf<HTMLInputElement>} */
    const metrics = this.element.querySelectorAll("input.metric, .metric input");
    metrics[this.view.subs.length - 1]?.focus();
  }

  /** @param {"exp" | "gexp"} kind */
  addExpression(kind) {
    this.view.expressions.push({ ...newExpression(), kind });
    this.render();
    /** @type {NodeListOf<HTMLInputElement>} */
    const fields = this.element.querySelectorAll("input.expression");
    fields[fields.length - 1]?.focus();
  }

  /**
   * @param {SubQuery} sub
   * @param {number} index
   * @returns {HTMLElement}
   */
  subCard(sub, index) {
    const { view } = this;
    const id = letter(index);
    const card = el("section", { class: sub.off ? "card off" : "card", "aria-label": `Sub query ${id}` });
    const changed = () => this.onChange();
    const again = () => {
      this.render();
      this.onChange();
    };
    const metric = comboBox({
      value: sub.metric,
      label: `Metric of ${id}`,
      placeholder: "metric",
      completions: metricsWith,
      onChange: (value) => {
        sub.metric = value;
        changed();
      },
    });
    metric.classList.add("metric", "grow");
    const head = el(
      "div",
      { class: "card-head" },
      el("span", { class: "badge", title: `Expressions name this sub query ${id}` }, id),
      metric,
      button(sub.off ? "show" : "hide", () => {
        sub.off = !sub.off;
        again();
      }, { class: "quiet", "aria-label": `${sub.off ? "Show" : "Hide"} ${id}`, title: "Hidden sub queries are read by expressions only" }),
      button("copy", () => this.addSub(structuredClone(sub)), { class: "quiet", "aria-label": `Copy ${id}` }),
      button("×", () => {
        view.subs.splice(index, 1);
        if (!view.subs.length) {
          view.subs.push(newSub());
        }
        again();
      }, { class: "quiet icon", "aria-label": `Remove ${id}` }),
    );
    const set = (/** @type {"aggregator" | "fn" | "fill"} */ name) => (/** @type {string} */ value) => {
      sub[name] = value;
      changed();
    };
    const interval = textField(sub.interval, (value) => {
      sub.interval = value || "none";
      changed();
    }, { list: "intervals", title: "auto: about a point for two pixels; none: all points; 1dc: days of the calendar" });
    const main = el(
      "div",
      { class: "grid4" },
      field("Aggregate", select(this.vocabulary.aggregators, sub.aggregator, set("aggregator"))),
      field("Downsample", interval),
      field("by", select(this.vocabulary.aggregators.filter((name) => name !== "none"), sub.fn, set("fn"))),
      field("Fill", select(FILLS, sub.fill, set("fill"))),
    );
    card.append(head, el("div", { class: "card-body" }, main, this.filterFields(sub, again), this.moreFields(sub, id, again)));
    return card;
  }

  /**
   * @param {SubQuery} sub
   * @param {() => void} again
   * @returns {HTMLElement}
   */
  filterFields(sub, again) {
    const types = [...this.vocabulary.filters.keys()];
    const rows = sub.filters.map((filter, index) => {
      const key = comboBox({
        value: filter.tagk,
        label: "Tag key",
        placeholder: "tag key",
        completions: (text) => tagKeys(sub.metric, text),
        onChange: (value) => {
          filter.tagk = value;
          this.onChange();
        },
      });
      const value = comboBox({
        value: filter.filter,
        label: "Tag value",
        placeholder: "value",
        completions: (text) => tagValues(sub.metric, filter.tagk, text),
        separator: filter.type.includes("literal_or") ? "|" : "",
        onChange: (text) => {
          filter.filter = text;
          this.onChange();
        },
      });
      const type = select(types, filter.type, (chosen) => {
        filter.type = chosen;
        again();
      }, { "aria-label": "Filter", title: this.vocabulary.filters.get(filter.type) ?? "" });
      const group = button("by", () => {
        filter.groupBy = !filter.groupBy;
        again();
      }, { "aria-pressed": String(filter.groupBy), title: "A series of its own for each value", "aria-label": "Group by this tag" });
      const remove = button("×", () => {
        sub.filters.splice(index, 1);
        again();
      }, { class: "quiet icon", "aria-label": "Remove the filter" });
      return el("div", { class: "filter" }, key, type, value, group, remove);
    });
    const values = sub.valueFilters.map((filter, index) =>
      el(
        "div",
        { class: "filter value" },
        select(VALUE_FILTERS.map((type) => /** @type {[string, string]} */ ([type, `value ${type}`])), filter.type, (chosen) => {
          filter.type = chosen;
          again();
        }, { "aria-label": "Comparison of values" }),
        textField(filter.filter, (text) => {
          filter.filter = text;
          this.onChange();
        }, { placeholder: /between|outside/.test(filter.type) ? "low, high" : "number", "aria-label": "Number to compare with" }),
        button("×", () => {
          sub.valueFilters.splice(index, 1);
          again();
        }, { class: "quiet icon", "aria-label": "Remove the filter" }),
      ),
    );
    const add = el(
      "div",
      { class: "row" },
      button("+ Tag filter", () => {
        sub.filters.push({ tagk: "", type: "wildcard", filter: "*", groupBy: true });
        this.render();
      }, { class: "quiet", title: "Select series by tags, and group by them" }),
      button("+ Value filter", () => {
        sub.valueFilters.push({ type: "gt", filter: "" });
        this.render();
      }, { class: "quiet", title: "Keep only points whose values fit" }),
    );
    return el("div", { class: "stack" }, rows, values, add);
  }

  /**
   * @param {SubQuery} sub
   * @param {string} id
   * @param {() => void} again
   * @returns {HTMLElement}
   */
  moreFields(sub, id, again) {
    const flag = (/** @type {"rate" | "counter" | "dropResets" | "explicitTags" | "preAggregate" | "showBuckets"} */ name, /** @type {string} */ label, /** @type {string} */ title) =>
      check(label, sub[name], (value) => {
        sub[name] = value;
        again();
      }, title);
    const text = (/** @type {"counterMax" | "resetValue" | "percentiles" | "tsuids"} */ name, /** @type {string} */ placeholder) =>
      textField(sub[name], (value) => {
        sub[name] = value;
        this.onChange();
      }, { placeholder });
    const rate = el(
      "fieldset",
      null,
      el("legend", null, "Rate"),
      el(
        "div",
        { class: "row" },
        flag("rate", "per second", "The change per second instead of the value"),
        sub.rate ? flag("counter", "counter", "A falling value means that the counter wrapped") : null,
        sub.rate ? flag("dropResets", "drop resets", "No point where the counter wrapped") : null,
      ),
      sub.rate
        ? el("div", { class: "grid2" }, field("Counter maximum", text("counterMax", "2^63-1")), field("Reset value", text("resetValue", "0: none")))
        : null,
    );
    const rollups = ROLLUPS.map((usage) => /** @type {[string, string]} */ ([usage, usage ? usage.toLowerCase() : "default"]));
    const more = el(
      "details",
      { open: this.opened.has(sub) || isUnusual(sub) },
      el("summary", null, "Rate, histograms, rollups, drawing"),
      el(
        "div",
        { class: "stack" },
        rate,
        el(
          "div",
          { class: "grid2" },
          field("Draw as", select(STYLES, sub.style, (value) => {
            sub.style = STYLES.find((style) => style === value) ?? "line";
            this.onChange();
          })),
          field("Axis", select([["1", "left"], ["2", "right"]], String(sub.axis), (value) => {
            sub.axis = value === "2" ? 2 : 1;
            this.onChange();
          })),
          field("Percentiles of histograms", text("percentiles", "50, 99.9")),
          field("Rollups", select(rollups, sub.rollup, (value) => {
            sub.rollup = value;
            this.onChange();
          })),
        ),
        el(
          "div",
          { class: "row" },
          flag("explicitTags", "explicit tags", "Only series that have exactly the filtered tag keys"),
          flag("preAggregate", "pre-aggregates", "Read the table of pre-aggregated points"),
          flag("showBuckets", "buckets", "A series for each bucket of a histogram"),
        ),
        field("TSUIDs instead of metric and tags", text("tsuids", "000001000001000001, …")),
      ),
    );
    more.addEventListener("toggle", () => (more.open ? this.opened.add(sub) : this.opened.delete(sub)));
    more.setAttribute("aria-label", `More of ${id}`);
    return more;
  }

  /**
   * @param {Expression} expression
   * @param {number} index
   * @returns {HTMLElement}
   */
  expressionCard(expression, index) {
    const arithmetic = expression.kind === "exp";
    const text = textField(expression.text, (value) => {
      expression.text = value;
      this.onChange();
    }, {
      class: "grow expression mono",
      "aria-label": arithmetic ? "Expression" : "Function",
      placeholder: arithmetic ? "a / b * 100" : "movingAverage(sum:1m-avg:sys.load{host=*}, 10)",
    });
    const drawing = el(
      "div",
      { class: "grid2" },
      field("Draw as", select(STYLES, expression.style, (value) => {
        expression.style = STYLES.find((style) => style === value) ?? "line";
        this.onChange();
      })),
      field("Axis", select([["1", "left"], ["2", "right"]], String(expression.axis), (value) => {
        expression.axis = value === "2" ? 2 : 1;
        this.onChange();
      })),
    );
    const join = arithmetic
      ? field("Series of several sub queries", select(JOINS, expression.join, (value) => {
        expression.join = value;
        this.onChange();
      }))
      : null;
    const hint = arithmetic
      ? "Sub queries by their letters. Downsampling and rate are those of the first one."
      : "scale, movingAverage, absolute, highestMax, highestCurrent, sumSeries, diffSeries, multiplySeries, divideSeries, timeShift, alias, firstDiff";
    return el(
      "section",
      { class: "card", "aria-label": arithmetic ? "Expression" : "Function" },
      el(
        "div",
        { class: "card-head" },
        el("span", { class: "badge" }, arithmetic ? "=" : "ƒ"),
        text,
        button("×", () => {
          this.view.expressions.splice(index, 1);
          this.render();
          this.onChange();
        }, { class: "quiet icon", "aria-label": "Remove the expression" }),
      ),
      el("div", { class: "card-body" }, el("p", { class: "hint" }, hint), join, drawing),
    );
  }
}

/** Makes the list of intervals for downsampling. */
export function intervalList() {
  return el("datalist", { id: "intervals" }, INTERVALS.map((interval) => el("option", { value: interval })));
}

/**
 * Returns true if a sub query has an option in the folded section of its card.
 *
 * @param {SubQuery} sub
 * @returns {boolean}
 */
function isUnusual(sub) {
  return Boolean(sub.rate || sub.percentiles || sub.rollup || sub.explicitTags || sub.preAggregate || sub.showBuckets || sub.tsuids);
}

/**
 * @param {string} metric
 * @param {string} text
 * @returns {Promise<string[]>}
 */
async function tagKeys(metric, text) {
  if (!metric) {
    return suggest("tagk", text);
  }
  const { complete, tags } = await tagsOf(metric);
  const found = matching([...tags.keys()], text);
  return complete ? found : merge(found, await suggest("tagk", text));
}

/**
 * @param {string} metric
 * @param {string} tagk
 * @param {string} text
 * @returns {Promise<string[]>}
 */
async function tagValues(metric, tagk, text) {
  const plain = text === "*" ? "" : text;
  if (!metric || !tagk) {
    return suggest("tagv", plain);
  }
  const { complete, tags } = await tagsOf(metric);
  const found = matching([...(tags.get(tagk) ?? [])], plain);
  return complete ? found : merge(found, await suggest("tagv", plain));
}

/**
 * Returns names that contain a text. Names that begin with it come first.
 *
 * @param {string[]} names
 * @param {string} text
 * @returns {string[]}
 */
function matching(names, text) {
  const wanted = text.toLowerCase();
  const rank = (/** @type {string} */ name) => (name.toLowerCase().startsWith(wanted) ? 0 : 1);
  return names
    .filter((name) => name.toLowerCase().includes(wanted))
    .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
}

/**
 * @param {string[]} first
 * @param {string[]} second
 * @returns {string[]}
 */
function merge(first, second) {
  return [...new Set([...first, ...second])];
}
