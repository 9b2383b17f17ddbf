/** @file Tables: a table that can be sorted by its columns, the legend of a chart, and the points of a view. */

import { COLOURS_CHANGED, button, el, fill, keepFocus } from "./dom.js";
import { count, exact, short } from "./format.js";
import { labelOf } from "./result.js";
import { timeText } from "./time.js";

/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./dom.js").Child} Child */

/**
 * @template T
 * @typedef {object} Column
 * @property {string} label
 * @property {(row: T) => Child} cell
 * @property {(row: T) => string | number} [sort] sort key of a row
 * @property {boolean} [number]
 * @property {string} [class]
 */

/** @typedef {{ column: number, descending: boolean }} Order */

/**
 * Renders an order for a link: `3d` is descending by the fourth column.
 *
 * @param {Order | null} order
 * @returns {string}
 */
export function orderText(order) {
  return order ? `${order.column}${order.descending ? "d" : "a"}` : "";
}

/**
 * @param {string | null} text
 * @returns {Order | null}
 */
export function readOrder(text) {
  const order = /^(\d)([ad])$/.exec(text ?? "");
  return order ? { column: Number(order[1]), descending: order[2] === "d" } : null;
}

/**
 * Makes a table that sorts its rows after a click on a heading. The caller keeps the order, so that the next table has it, too.
 *
 * @template T
 * @param {object} options
 * @param {string} options.label
 * @param {Column<T>[]} options.columns
 * @param {T[]} options.rows
 * @param {Order | null} options.order
 * @param {(order: Order) => void} options.onOrder
 * @param {(row: T, element: HTMLTableRowElement) => void} [options.onRow]
 * @returns {HTMLTableElement}
 */
export function sortableTable({ label, columns, rows, order, onOrder, onRow }) {
  const by = order ? columns[order.column]?.sort : undefined;
  const sorted = by ? [...rows].sort((a, b) => compare(by(a), by(b)) * (order?.descending ? -1 : 1)) : rows;
  const headings = columns.map((column, index) => {
    const sortedBy = order?.column === index;
    const direction = sortedBy ? (order.descending ? "descending" : "ascending") : null;
    const turn = () => onOrder({ column: index, descending: sortedBy ? !order.descending : Boolean(column.number) });
    return el(
      "th",
      { scope: "col", class: column.number ? "num" : column.class, "aria-sort": column.sort ? (direction ?? "none") : null },
      column.sort ? button(column.label, turn) : column.label,
    );
  });
  const body = sorted.map((row) => {
    const made = el("tr", null, columns.map((column) => el("td", { class: column.number ? "num" : column.class }, column.cell(row))));
    onRow?.(row, made);
    return made;
  });
  return el("table", { "aria-label": label }, el("thead", null, el("tr", null, headings)), el("tbody", null, body));
}

/**
 * Compares cells: NaN is less than any number, and texts sort in numeric order.
 *
 * @param {string | number} a
 * @param {string | number} b
 * @returns {number}
 */
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    const [x, y] = [Number.isNaN(a) ? -Infinity : a, Number.isNaN(b) ? -Infinity : b];
    return x < y ? -1 : x > y ? 1 : 0;
  }
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Maximum series in the legend. */
const MOST_SERIES = 500;

export class Legend {
  /**
   * @param {(series: Series) => string} colorOf
   * @param {() => void} onChange the user hid or showed series
   * @param {(order: Order) => void} onOrder
   */
  constructor(colorOf, onChange, onOrder) {
    this.colorOf = colorOf;
    this.onChange = onChange;
    this.onOrder = onOrder;
    /** @type {Order | null} */
    this.order = null;
    /** @type {Series[]} */
    this.series = [];
    /** @type {Map<Series, HTMLTableRowElement>} */
    this.rows = new Map();
    this.element = el("div", { class: "scroll short legend" });
    addEventListener(COLOURS_CHANGED, () => this.render());
  }

  /** @param {Series[]} series */
  show(series) {
    this.series = series;
    this.render();
  }

  render() {
    keepFocus(this.element, () => this.renderTable());
  }

  renderTable() {
    this.rows.clear();
    const stat = (/** @type {"last" | "min" | "max" | "avg"} */ name) => ({
      label: name,
      number: true,
      cell: (/** @type {Series} */ series) => el("span", { title: exact(series.stats[name]) }, short(series.stats[name])),
      sort: (/** @type {Series} */ series) => series.stats[name],
    });
    const table = sortableTable({
      label: "Series",
      columns: [
        {
          label: this.series.length === 1 ? "1 series" : `${count(this.series.length)} series`,
          class: "name",
          cell: (series) => this.nameCell(series),
          sort: labelOf,
        },
        stat("last"),
        stat("min"),
        stat("max"),
        stat("avg"),
        { label: "points", number: true, cell: (series) => count(series.stats.points), sort: (series) => series.stats.points },
      ],
      rows: this.series.slice(0, MOST_SERIES),
      order: this.order,
      onOrder: (order) => {
        this.order = order;
        this.render();
        this.onOrder(order);
      },
      onRow: (series, row) => this.rows.set(series, row),
    });
    const more = this.series.length - MOST_SERIES;
    fill(this.element, table, more > 0 ? el("p", { class: "hint" }, `${count(more)} more series are drawn, but not listed.`) : null);
  }

  /**
   * @param {Series} series
   * @returns {HTMLElement}
   */
  nameCell(series) {
    const swatch = el("span", { class: "swatch" });
    swatch.style.color = this.colorOf(series);
    const tags = series.tags.flatMap(([key, value], index) => [
      index ? ", " : " ",
      el("span", { class: "tag" }, `${key}=`, el("b", null, value)),
    ]);
    const toggle = el(
      "button",
      { type: "button", class: "toggle", "aria-pressed": String(!series.hidden), title: "Hide or show; with Shift only this one" },
      swatch,
      el("span", null, series.name, tags, series.aggregated.length ? el("span", { class: "dim" }, ` (over ${series.aggregated.join(", ")})`) : null),
    );
    toggle.addEventListener("click", (event) => this.toggle(series, event.shiftKey || event.altKey));
    return toggle;
  }

  /**
   * @param {Series} series
   * @param {boolean} only
   */
  toggle(series, only) {
    if (only) {
      const alone = this.series.every((other) => other.hidden === (other !== series));
      for (const other of this.series) {
        other.hidden = !alone && other !== series;
      }
    } else {
      series.hidden = !series.hidden;
    }
    this.render();
    this.onChange();
  }

  /** @param {Series | null} near */
  mark(near) {
    for (const [series, row] of this.rows) {
      row.classList.toggle("lit", series === near);
    }
  }
}

/** Rows of a page of points. */
const PAGE_ROWS = 200;

export class PointTable {
  /** @param {(page: number) => void} onPage */
  constructor(onPage) {
    this.onPage = onPage;
    /** @type {Series[]} */
    this.series = [];
    this.zone = "UTC";
    this.page = 0;
    this.element = el("div", { class: "panel" });
  }

  /**
   * @param {Series[]} series
   * @param {string} zone
   */
  show(series, zone) {
    this.series = series.filter((one) => !one.hidden);
    this.zone = zone;
    this.render();
  }

  render() {
    keepFocus(this.element, () => this.renderPage());
  }

  renderPage() {
    const { times, rows } = pivot(this.series);
    const pages = Math.max(1, Math.ceil(times.length / PAGE_ROWS));
    this.page = Math.min(this.page, pages - 1);
    const from = this.page * PAGE_ROWS;
    const go = (/** @type {number} */ page) => {
      this.page = page;
      this.render();
      this.onPage(page);
    };
    const head = el(
      "div",
      { class: "panel-head" },
      el("span", null, `${count(times.length)} times`),
      el(
        "span",
        { class: "row end" },
        button("‹", () => go(this.page - 1), { class: "icon", disabled: this.page === 0, "aria-label": "Earlier page" }),
        `${this.page + 1} of ${pages}`,
        button("›", () => go(this.page + 1), { class: "icon", disabled: this.page + 1 >= pages, "aria-label": "Later page" }),
      ),
    );
    const table = el(
      "table",
      { "aria-label": "Points" },
      el(
        "thead",
        null,
        el("tr", null, el("th", { scope: "col" }, `time (${this.zone})`), this.series.map((one) => el("th", { scope: "col", class: "num" }, labelOf(one)))),
      ),
      el(
        "tbody",
        null,
        times.slice(from, from + PAGE_ROWS).map((time, index) =>
          el(
            "tr",
            null,
            el("td", { class: "mono time" }, timeText(time, this.zone)),
            this.series.map((_, column) => {
              const value = rows[from + index]?.[column];
              return el("td", { class: "num" }, value === undefined ? "" : exact(value));
            }),
          ),
        ),
      ),
    );
    fill(this.element, head, el("div", { class: "scroll" }, table));
  }
}

/**
 * Converts series to rows by time. A series without a point at a time has `undefined` there.
 *
 * @param {Series[]} series
 * @returns {{ times: number[], rows: (number | undefined)[][] }}
 */
export function pivot(series) {
  /** @type {Map<number, (number | undefined)[]>} */
  const byTime = new Map();
  series.forEach((one, column) => {
    one.times.forEach((time, at) => {
      let row = byTime.get(time);
      if (!row) {
        row = new Array(series.length).fill(undefined);
        byTime.set(time, row);
      }
      row[column] = one.values[at];
    });
  });
  const times = [...byTime.keys()].sort((a, b) => a - b);
  return { times, rows: times.map((time) => byTime.get(time) ?? []) };
}
