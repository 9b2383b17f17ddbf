/** @file Starts the page: views by address, colours, and the health in the head. */

import { splitLink } from "./address.js";
import { ApiFailure, call } from "./api.js";
import { cardinality } from "./cardinality.js";
import { config } from "./config.js";
import { problemBox } from "./cost.js";
import { COLOURS_CHANGED, byId, el, fill, keepFocus, select } from "./dom.js";
import { GraphView } from "./graph.js";
import { log } from "./log.js";
import { overview } from "./overview.js";
import { queries } from "./queries.js";
import { storage } from "./storage.js";
import { localZone, zoneChoices } from "./time.js";
import { showUser } from "./user.js";
import { ZONE_CHANGED, chooseZone, pageZone } from "./zone.js";

/** @typedef {import("./poll.js").PageView} PageView */
/** @typedef {import("./query_form.js").Vocabulary} Vocabulary */

/** Views by their address after `#`. Any other address belongs to the graph. */
const VIEWS = /** @type {const} */ ([
  ["", "Graph"],
  ["/overview", "Overview"],
  ["/queries", "Queries"],
  ["/storage", "Storage"],
  ["/cardinality", "Cardinality"],
  ["/config", "Configuration"],
  ["/log", "Log"],
]);

const HEALTH_MS = 15_000;

/** @type {Map<string, PageView>} */
const made = new Map();

/** @type {PageView | null} */
let shown = null;

/** @type {Vocabulary} */
let vocabulary = { aggregators: ["sum", "avg", "min", "max", "count"], filters: new Map([["wildcard", ""]]) };

/**
 * @param {string} name
 * @returns {PageView}
 */
function make(name) {
  switch (name) {
    case "/overview":
      return overview();
    case "/queries":
      return queries();
    case "/storage":
      return storage();
    case "/cardinality":
      return cardinality();
    case "/config":
      return config();
    case "/log":
      return log();
    default:
      return new GraphView(vocabulary);
  }
}

/** Shows the view that the address names. */
function show() {
  const link = location.hash.slice(1);
  const [asked] = splitLink(link);
  const name = VIEWS.find(([path]) => path !== "" && path === asked)?.[0] ?? "";
  const view = made.get(name) ?? make(name);
  made.set(name, view);
  if (shown !== view) {
    shown?.close();
    fill(byId("content"), view.element);
    shown = view;
  }
  renderTabs(name);
  view.open(link);
}

/** @param {string} current */
function renderTabs(current) {
  fill(
    byId("tabs"),
    VIEWS.map(([path, label]) => el("a", { href: `#${path}`, "data-path": path, "aria-current": path === current ? "page" : null }, label)),
  );
  if (current !== "") {
    document.title = `${VIEWS.find(([path]) => path === current)?.[1] ?? ""} – Saltern`;
  }
}

/** Makes tabs lead to the last state of their views, in this browser tab or in another one. */
function followTabs() {
  const refresh = () => {
    for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (byId("tabs").querySelectorAll("a"))) {
      const path = link.dataset["path"] ?? "";
      link.href = `#${made.get(path)?.link() ?? path}`;
    }
  };
  // `click` comes after the focused field has reported its text; the others come before a menu or another tab opens.
  for (const event of ["pointerdown", "focusin", "contextmenu", "click"]) {
    byId("tabs").addEventListener(event, refresh);
  }
}

/** Adds the choice of the time zone to the head of all views. */
function startZone() {
  const place = byId("zone");
  const render = () => {
    const zone = pageZone();
    const made = select(zoneChoices(), zone === localZone() ? "" : zone, (name) => {
      chooseZone(name);
      shown?.zoneChanged();
    }, { "aria-label": "Time zone", title: "The zone of all times on this page" });
    fill(place, made);
  };
  addEventListener(ZONE_CHANGED, () => keepFocus(place, render));
  render();
}

const SYSTEM_IS_DARK = "(prefers-color-scheme: dark)";

/** Themes, with the media query for which dark colours apply. */
const THEMES = /** @type {Record<string, string>} */ ({ system: SYSTEM_IS_DARK, light: "not all", dark: "all" });

/** Storage key of the chosen theme. */
const THEME_KEY = "saltern.theme";

function startTheme() {
  const button = byId("theme");
  const dark = /** @type {HTMLLinkElement} */ (byId("dark"));
  const names = Object.keys(THEMES);
  const apply = (/** @type {string} */ theme) => {
    dark.media = THEMES[theme] ?? SYSTEM_IS_DARK;
    button.textContent = theme === "dark" ? "☾ dark" : theme === "light" ? "☀ light" : "◐ system";
    button.setAttribute("aria-label", `Colours: ${theme}`);
    dispatchEvent(new Event(COLOURS_CHANGED));
  };
  let theme = stored();
  button.addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % names.length] ?? "system";
    try {
      localStorage.setItem(THEME_KEY, theme);
    } catch {
      // Without storage, the choice lasts until the page closes.
    }
    apply(theme);
  });
  matchMedia(SYSTEM_IS_DARK).addEventListener("change", () => dispatchEvent(new Event(COLOURS_CHANGED)));
  apply(theme);
}

/** @returns {string} */
function stored() {
  try {
    return localStorage.getItem(THEME_KEY) ?? "system";
  } catch {
    return "system";
  }
}

async function showHealth() {
  const health = byId("health");
  try {
    const status = /** @type {{ status: string, problems?: { reason: string }[], user?: string }} */ (await call("/api/status"));
    showUser(status.user ?? "");
    const problems = status.problems ?? [];
    health.className = `health ${problems.length ? "warn" : "good"}`;
    health.textContent = status.status;
    health.title = problems.map(({ reason }) => reason).join("\n");
  } catch (error) {
    const failure = error instanceof ApiFailure && error.status ? error : null;
    health.className = "health bad";
    health.textContent = failure ? `status ${failure.status}` : "no response";
    health.title = failure ? failure.message : "";
  }
}

async function readVocabulary() {
  const [aggregators, filters] = await Promise.all([call("/api/aggregators"), call("/api/config/filters")]);
  const described = /** @type {Record<string, { description?: string }>} */ (filters ?? {});
  const order = ["literal_or", "wildcard", "regexp", "iliteral_or", "iwildcard", "not_literal_or", "not_iliteral_or"];
  const rank = (/** @type {string} */ name) => (order.indexOf(name) + order.length + 1) % (order.length + 1);
  const names = Object.keys(described).sort((a, b) => rank(a) - rank(b));
  vocabulary = {
    aggregators: Array.isArray(aggregators) ? aggregators.map(String).sort((a, b) => common(a) - common(b) || a.localeCompare(b)) : [],
    filters: new Map(names.map((name) => [name, described[name]?.description ?? ""])),
  };
}

/**
 * Ranks aggregators, so that the most common come first.
 *
 * @param {string} name
 * @returns {number}
 */
function common(name) {
  const at = ["sum", "avg", "min", "max", "count", "none", "last", "first", "p50", "p95", "p99"].indexOf(name);
  return at < 0 ? 99 : at;
}

async function showVersion() {
  const version = /** @type {{ version?: string }} */ (await call("/api/version"));
  byId("version").textContent = version.version ?? "";
}

async function start() {
  startTheme();
  startZone();
  followTabs();
  try {
    await readVocabulary();
  } catch (error) {
    fill(byId("content"), el("div", { class: "page" }, problemBox(error, "The API of this daemon cannot be used")));
    return;
  }
  window.addEventListener("hashchange", show);
  show();
  byId("skip").addEventListener("click", (event) => {
    // The address belongs to the view.
    event.preventDefault();
    byId("content").focus();
  });
  void showVersion().catch(() => {});
  void showHealth();
  setInterval(() => void (document.hidden || showHealth()), HEALTH_MS);
}

void start();
