/** @file Views of the daemon's state, which read it again at intervals while they are shown. */

import { setAddress, splitLink, stateLink } from "./address.js";
import { problemBox } from "./cost.js";
import { el, fill } from "./dom.js";
import { isZone } from "./time.js";
import { useZone } from "./zone.js";

/**
 * A view of the page.
 *
 * @typedef {object} PageView
 * @property {HTMLElement} element
 * @property {(link: string) => void} open shows the content of a link, the part of the address after `#`
 * @property {() => void} close
 * @property {() => string} link to the current content
 * @property {() => void} zoneChanged handles a change of the page's time zone
 */

/**
 * State of a view in its link.
 *
 * @typedef {object} LinkState
 * @property {() => Record<string, string>} write the link omits empty values
 * @property {(state: URLSearchParams) => void} read
 */

/**
 * Makes a view that calls `read` at once and again `intervalMs` after its end, while the view is shown and the page is visible. An
 * error appears above the old content.
 *
 * @param {string} path of its links
 * @param {HTMLElement} body
 * @param {number} intervalMs 0: read once
 * @param {() => Promise<void>} read
 * @param {LinkState} [state]
 * @returns {PageView & { again: () => void, save: (push?: boolean) => void }}
 */
export function polled(path, body, intervalMs, read, state) {
  const problem = el("div", { class: "stack" });
  const element = el("div", { class: "page" }, problem, body);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let round = 0;
  let wasRead = false;
  let isShown = false;
  const step = async (/** @type {number} */ mine) => {
    if (!document.hidden) {
      try {
        await read();
        wasRead = true;
        body.hidden = false;
        fill(problem);
      } catch (error) {
        if (mine === round) {
          // Panels that were never filled would look like an empty result.
          body.hidden = !wasRead;
          fill(problem, problemBox(error));
        }
      }
    }
    if (intervalMs && mine === round) {
      timer = setTimeout(() => void step(mine), intervalMs);
    }
  };
  // A field that loses the focus to another view reports its text only after the change of views.
  const again = () => {
    if (!isShown) {
      return;
    }
    clearTimeout(timer);
    round += 1;
    void step(round);
  };
  const link = () => stateLink(path, state?.write() ?? {});
  const save = (push = false) => {
    if (isShown) {
      setAddress(link(), push);
    }
  };
  return {
    element,
    open: (/** @type {string} */ opened) => {
      isShown = true;
      const [, given] = splitLink(opened);
      const zone = given.get("tz") ?? "";
      if (isZone(zone)) {
        useZone(zone);
      }
      state?.read(given);
      save();
      again();
    },
    close: () => {
      isShown = false;
      clearTimeout(timer);
      round += 1;
    },
    link,
    zoneChanged: () => {
      save();
      again();
    },
    again,
    save,
  };
}

/**
 * Makes a panel with a heading.
 *
 * @param {string} title
 * @param {...import("./dom.js").Child} children
 * @returns {HTMLElement}
 */
export function panel(title, ...children) {
  return el("section", { class: "panel" }, el("div", { class: "panel-head" }, el("h2", null, title)), children);
}

/**
 * Makes a tile with a value and its name.
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
