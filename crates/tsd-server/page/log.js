/** @file The view of the last lines of the log. */

import { ApiFailure, call } from "./api.js";
import { check, el, fill, select } from "./dom.js";
import { polled } from "./poll.js";

const LEVELS = ["all", "ERROR", "WARN", "INFO", "DEBUG"];

/** @typedef {{ time: string, level: string, text: string }} LogLine */

/** @returns {import("./poll.js").PageView} */
export function log() {
  let level = "all";
  let follow = true;
  /** @type {LogLine[]} */
  let lines = [];
  const list = el("div", { class: "scroll log mono", tabindex: "0", "aria-label": "Log" });
  const search = el("input", { type: "search", placeholder: "text", "aria-label": "Search the log" });
  search.addEventListener("input", () => show());
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const least = LEVELS.indexOf(level);
    const shown = lines.filter(
      (line) => line.text.toLowerCase().includes(wanted) && (level === "all" || (LEVELS.indexOf(line.level) > 0 && LEVELS.indexOf(line.level) <= least)),
    );
    fill(
      list,
      shown.length
        ? shown.map((line) => el("div", { class: line.level }, el("span", { class: "dim" }, line.time), el("span", null, line.level), el("span", null, line.text)))
        : el("p", { class: "dim" }, "No lines"),
    );
  };
  const head = el(
    "div",
    { class: "panel-head" },
    search,
    el("label", { class: "row" }, el("span", { class: "dim" }, "at least"), select(LEVELS, level, (value) => {
      level = value;
      show();
    })),
    check("follow", true, (value) => {
      follow = value;
    }),
  );
  return polled(el("div", { class: "panel" }, head, list), 3000, async () => {
    if (!follow && lines.length) {
      return;
    }
    try {
      lines = readLines(await call("/logs?json"));
    } catch (error) {
      // 400: the program was started without keeping them.
      if (error instanceof ApiFailure && (error.status === 404 || error.status === 400)) {
        fill(list, el("p", { class: "dim" }, "This daemon does not serve its log. It is written to standard error."));
        return;
      }
      throw error;
    }
    show();
  });
}

/**
 * Lines of `/logs?json`: texts with tabs between time, level, thread, logger and message, the newest first.
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
    const time = Number.isFinite(seconds) ? new Date(seconds * (seconds > 1e11 ? 1 : 1000)).toISOString().slice(0, 19).replace("T", " ") : (parts[0] ?? "");
    return { time, level: parts[1] ?? "", text: parts.slice(2).filter(Boolean).join("  ") };
  });
}
