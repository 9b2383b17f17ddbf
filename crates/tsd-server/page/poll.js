/** @file Views that show the state of the daemon, read again at intervals while they are shown. */

import { el, fill } from "./dom.js";
import { problemBox } from "./cost.js";

/**
 * A view of the page.
 *
 * @typedef {object} PageView
 * @property {HTMLElement} element
 * @property {(hash: string) => void} open
 * @property {() => void} close
 */

/**
 * Makes a view that calls `read` at once and then again `intervalMs` after it has ended, while the view is shown and the page is
 * visible. An error is shown above the rest, which stays.
 *
 * @param {HTMLElement} body
 * @param {number} intervalMs 0: read once
 * @param {() => Promise<void>} read
 * @returns {PageView & { again: () => void }}
 */
export function polled(body, intervalMs, read) {
  const problem = el("div", { class: "stack" });
  const element = el("div", { class: "page" }, problem, body);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let round = 0;
  const step = async (/** @type {number} */ mine) => {
    if (!document.hidden) {
      try {
        await read();
        fill(problem);
      } catch (error) {
        if (mine === round) {
          fill(problem, problemBox(error));
        }
      }
    }
    if (intervalMs && mine === round) {
      timer = setTimeout(() => void step(mine), intervalMs);
    }
  };
  const again = () => {
    clearTimeout(timer);
    round += 1;
    void step(round);
  };
  return {
    element,
    open: again,
    close: () => {
      clearTimeout(timer);
      round += 1;
    },
    again,
  };
}

/**
 * A panel with a heading.
 *
 * @param {string} title
 * @param {...import("./dom.js").Child} children
 * @returns {HTMLElement}
 */
export function panel(title, ...children) {
  return el("section", { class: "panel" }, el("div", { class: "panel-head" }, el("h2", null, title)), children);
}

/**
 * A figure with its name.
 *
 * @param {string} name
 * @param {string} value
 * @param {string} [extra]
 * @param {string} [level] `warn` or `bad`
 * @returns {HTMLElement}
 */
export function tile(name, value, extra = "", level = "") {
  return el("div", { class: `tile ${level}` }, el("div", { class: "k" }, name), el("div", { class: "v" }, value), el("div", { class: "x" }, extra));
}
