/** @file The view of the last lines of the log. */

import { ApiFailure, call } from "./api.js";
import { check, el, fill, select } from "./dom.js";
import { polled } from "./poll.js";
import { timeText } from "./time.js";
import { pageZone } from "./zone.js";

const LEVELS = ["all", "ERROR", "WARN", "INFO", "DEBUG"];

/** @typedef {{ time: number | string, level: string, text: string }} LogLine a time in milliseconds, or its text if it is unreadable */

/** @returns {import("./poll.js").PageView} */
export function log() {
  let level = "all";
  let follow = true;
  /** @type {LogLine[]} */
  let lines = [];
  const list = el("div", { class: "scroll log mono", tabindex: "0", "aria-label": "Log" });
  const search = el("input", { type: "search", placeholder: "text", "aria-label": "Search the log" });
  search.addEventListener("input", () => {
    show();
    view.save();
  });
  const zone = el("span", { class: "dim" });
  const clock = (/** @type {LogLine["time"]} */ time) => (typeof time === "number" ? timeText(time, pageZone()) : time);
  const show = () => {
    zone.textContent = `Times in ${pageZone()}`;
    const wanted = search.value.trim().toLowerCase();
    const least = LEVELS.indexOf(level);
    const shown = lines.filter(
      (line) => line.text.toLowerCase().includes(wanted) && (level === "all" || (LEVELS.indexOf(line.level) > 0 && LEVELS.indexOf(line.level) <= least)),
    );
    fill(
      list,
      shown.length
        ? shown.map((line) => el("div", { class: line.level }, el("span", { class: "dim" }, clock(line.time)), el("span", null, line.level), el("span", null, line.text)))
        : el("p", { class: "dim" }, "No lines"),
    );
  };
  const levels = select(LEVELS, level, (value) => {
    level = value;
    show();
    view.save();
  });
  const head = el(
    "div",
    { class: "panel-head" },
    search,
    el("label", { class: "row" }, el("span", { class: "dim" }, "at least"), levels),
    check("follow", true, (value) => {
      follow = value;
    }),
    el("span", { class: "end" }, zone),
  );
  const view = polled("/log", el("div", { class: "panel" }, head, list), 3000, async () => {
    if (!follow && lines.length) {
      show();
      return;
    }
    try {
      lines = readLines(await call("/logs?json"));
    } catch (error) {
      // 400: the daemon does not keep its last log events.
      if (error instanceof ApiFailure && (error.status === 404 || error.status === 400)) {
        fill(list, el("p", { class: "dim" }, "This daemon does not serve its log. It is written to standard error."), el("p", { class: "dim" }, error.message));
        return;
      }
      throw error;
    }
    show();
  }, {
    write: () => ({ text: search.value.trim(), level: level === "all" ? "" : level }),
    read: (state) => {
      search.value = state.get("text") ?? "";
      level = LEVELS.find((known) => known === state.get("level")) ?? "all";
      levels.value = level;
      show();
    },
  });
  return view;
}

/**
 * Parses the lines of `/logs?json`: texts with tabs between time, level, thread, logger and message, newest first.
 *
 * @param {unknown} given
 * @returns {LogLine[]}
 */
export function readLines(given) {
  return (Array.isArray(given) ? given : []).map((line) => {
    const parts = String(line).split("\t");
    if (parts.length < 3) {
      return { time: "", level: "", text: String(line) };
    }
    const seconds = Number(parts[0]);
    const time = Number.isFinite(seconds) ? Math.floor(seconds > 1e11 ? seconds / 1000 : seconds) * 1000 : (parts[0] ?? "");
    return { time, level: parts[1] ?? "", text: parts.slice(2).filter(Boolean).join("  ") };
  });
}
