/** @file The address of the page. Each view keeps its state there, so that users can share the address. */

import { escapeValue } from "./link.js";
import { pageZone } from "./zone.js";

/**
 * Shows a link in the address bar, as a new step of the history or in place of the current one.
 *
 * @param {string} link the part after `#`
 * @param {boolean} push
 */
export function setAddress(link, push) {
  const hash = `#${link}`;
  if (hash !== location.hash) {
    try {
      // Neither call fires `hashchange`.
      history[push ? "pushState" : "replaceState"](null, "", hash);
    } catch {
      // Safari accepts 100 changes in half a minute, which a held key exceeds. The next change includes this one.
    }
  }
}

/**
 * Renders the link of a view of the daemon's state. Omits empty values.
 *
 * @param {string} path
 * @param {Record<string, string>} state
 * @returns {string}
 */
export function stateLink(path, state) {
  const entries = Object.entries({ ...state, tz: pageZone() }).filter(([, value]) => value !== "");
  return `${path}?${entries.map(([name, value]) => `${name}=${escapeValue(value)}`).join("&")}`;
}

/**
 * Splits the link of a view into path and parameters.
 *
 * @param {string} link
 * @returns {[string, URLSearchParams]}
 */
export function splitLink(link) {
  const at = link.indexOf("?");
  return at < 0 ? [link, new URLSearchParams()] : [link.slice(0, at), new URLSearchParams(link.slice(at + 1))];
}
