/** @file Content of the page before a metric is chosen: the metrics of the store, with a search by any part of a name. */

import { searchNames } from "./api.js";
import { problemBox } from "./cost.js";
import { button, el, fill } from "./dom.js";
import { count, plural } from "./format.js";

/** @typedef {import("./api.js").FoundNames} FoundNames */

/** Maximum metrics in the list. */
export const MOST_LISTED = 200;

/** Pause in typing before a search. */
const PAUSE_MS = 200;

/**
 * @param {FoundNames} first the metrics without a search
 * @param {(metric: string) => void} onChoose
 * @returns {HTMLElement}
 */
export function metricList(first, onChoose) {
  const status = el("p", { class: "dim", role: "status" });
  const list = el("ul", { class: "metric-list", "aria-label": "Metrics of the store" });
  const search = el("input", { type: "search", placeholder: "any part of a name", "aria-label": "Search the metrics" });
  const show = (/** @type {FoundNames} */ found) => {
    fill(status, summaryOf(found));
    fill(list, found.names.map((name) => el("li", null, button(name, () => onChoose(name), { class: "quiet" }))));
  };
  let asked = 0;
  const look = async () => {
    asked += 1;
    const ask = asked;
    try {
      const found = await searchNames("metrics", search.value.trim(), MOST_LISTED);
      if (ask === asked) {
        show(found);
      }
    } catch (error) {
      if (ask === asked) {
        fill(list);
        fill(status, problemBox(error));
      }
    }
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => void look(), PAUSE_MS);
  });
  show(first);
  return el("div", { class: "empty", id: "metrics" }, el("h2", null, "Choose a metric"), search, status, list);
}

/**
 * Says how many metrics were found, and which part of them is listed.
 *
 * @param {FoundNames} found
 * @returns {string}
 */
function summaryOf({ names, matching, complete }) {
  const all = `${complete ? "" : "at least "}${plural(matching, "metric")}`;
  const cut = complete ? "" : "; the search took too long and did not see all names";
  return names.length < matching ? `${all}, the first ${count(names.length)} of them listed${cut}` : `${all}${cut}`;
}
