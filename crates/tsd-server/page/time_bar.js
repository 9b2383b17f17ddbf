/** @file The bar with the time range and the refresh interval of a graph. Edits the view in place. */

import { button, el, fill, keepFocus, select, textField } from "./dom.js";
import { settledTime, shownTime } from "./time.js";

/** @typedef {import("./view.js").View} View */

const RANGES = /** @type {const} */ (["15m", "1h", "6h", "1d", "7d", "30d"]);

const REFRESHES = /** @type {[string, string][]} */ ([
  ["0", "off"], ["1", "1 s"], ["5", "5 s"], ["10", "10 s"], ["30", "30 s"], ["60", "1 min"], ["300", "5 min"],
]);

/**
 * @typedef {object} TimeBarEvents
 * @property {() => void} onEdited the user entered a time
 * @property {() => void} onChosen the user chose another range
 * @property {() => void} onRefresh
 * @property {(share: number) => void} onPan
 * @property {(factor: number) => void} onZoom
 */

export class TimeBar {
  /**
   * @param {View} view
   * @param {TimeBarEvents} events
   */
  constructor(view, events) {
    this.view = view;
    this.events = events;
    this.element = el("div", { class: "timebar", role: "group", "aria-label": "Time range" });
  }

  /** @param {View} view */
  setView(view) {
    this.view = view;
    keepFocus(this.element, () => this.render());
  }

  render() {
    const { view, events } = this;
    const quick = RANGES.map((range) =>
      button(range, () => {
        view.start = `${range}-ago`;
        view.end = "";
        this.setView(view);
        events.onChosen();
      }, { "data-range": range }),
    );
    const mark = () => {
      for (const choice of quick) {
        choice.setAttribute("aria-pressed", String(view.start === `${choice.dataset["range"]}-ago` && view.end === ""));
      }
    };
    mark();
    const time = (/** @type {"start" | "end"} */ name, /** @type {string} */ label, /** @type {string} */ placeholder) => {
      const made = textField(shownTime(view[name], view.zone), (value) => {
        view[name] = settledTime(value, view.zone) || (name === "start" ? "1h-ago" : "");
        // The bar is not rendered again: the key that ended the entry moves the focus from here.
        mark();
        events.onEdited();
      }, { class: "time", "aria-label": label, placeholder, title: `2h-ago, or in ${view.zone} 2026/01/31 and 2026/01/31-12:00:00, or seconds since 1970`, id: `time-${name}` });
      const widen = () => made.style.setProperty("--characters", String(made.value.length));
      made.addEventListener("input", widen);
      widen();
      return made;
    };
    fill(
      this.element,
      el("span", { class: "segment", role: "group", "aria-label": "Recent" }, quick),
      time("start", "Start", "1h-ago"),
      el("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      time("end", "End", "now"),
      el("span", { class: "dim", id: "range-zone" }, view.zone),
      el(
        "span",
        { class: "segment", role: "group", "aria-label": "Move the range" },
        button("‹", () => events.onPan(-0.5), { class: "icon", "aria-label": "Earlier" }),
        button("−", () => events.onZoom(2), { class: "icon", "aria-label": "Zoom out", id: "zoom-out" }),
        button("+", () => events.onZoom(0.5), { class: "icon", "aria-label": "Zoom in", id: "zoom-in" }),
        button("›", () => events.onPan(0.5), { class: "icon", "aria-label": "Later" }),
      ),
      el("label", { class: "row" }, el("span", { class: "dim" }, "Refresh"), select(REFRESHES, String(view.refresh), (value) => {
        view.refresh = Number(value);
        events.onRefresh();
      })),
    );
  }
}
