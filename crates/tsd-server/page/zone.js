/** @file The time zone of the page: one for all views, chosen in the head or by a link, and shown with every time. */

import { isZone, localZone } from "./time.js";

/** Event of the window: the time zone of the page changed. */
export const ZONE_CHANGED = "zone";

/** Storage key of the chosen zone. */
const ZONE_KEY = "saltern.zone";

/** @type {string} */
let zone = stored() || localZone();

/** @returns {string} the zone chosen in this browser; empty for the browser's own */
function stored() {
  try {
    const kept = localStorage.getItem(ZONE_KEY) ?? "";
    return isZone(kept) ? kept : "";
  } catch {
    return "";
  }
}

/** @returns {string} the name of the page's zone */
export function pageZone() {
  return zone;
}

/**
 * Changes the zone until the page closes, as a link requests.
 *
 * @param {string} name
 */
export function useZone(name) {
  if (name !== zone) {
    zone = name;
    dispatchEvent(new Event(ZONE_CHANGED));
  }
}

/**
 * Changes the zone and stores the choice for the next visit.
 *
 * @param {string} name empty for the browser's own zone
 */
export function chooseZone(name) {
  try {
    if (name) {
      localStorage.setItem(ZONE_KEY, name);
    } else {
      localStorage.removeItem(ZONE_KEY);
    }
  } catch {
    // Without storage, the choice lasts until the page closes.
  }
  useZone(name || localZone());
}
