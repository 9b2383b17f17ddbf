/** @file Starts the page: its views by address, colours, and health in the head. */

import { call } from "./api.js";
import { cardinality } from "./cardinality.js";
import { config } from "./config.js";
import { problemBox } from "./cost.js";
import { COLOURS_CHANGED, byId, el, fill } from "./dom.js";
import { GraphView } from "./graph.js";
import { log } from "./log.js";
import { overview } from "./overview.js";
import { queries } from "./queries.js";
import { storage } from "./storage.js";

/** @typedef {import("./poll.js").PageView} PageView */
/** @typedef {import("./query_form.js").Vocabulary} Vocabulary */

/** Views by their address after `#`; the graph has any other. */
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

/** The link of the graph, to come back to it. */
let graphLink = "";

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
  const hash = location.hash.slice(1);
  const name = VIEWS.find(([path]) => path !== "" && path === hash)?.[0] ?? "";
  const view = made.get(name) ?? make(name);
  made.set(name, view);
  if (shown !== view) {
    shown?.close();
    fill(byId("content"), view.element);
    shown = view;
  }
  renderTabs(name);
  view.open(hash);
}

/** @param {string} current */
function renderTabs(current) {
  fill(
    byId("tabs"),
    VIEWS.map(([path, label]) => {
      const link = el("a", { href: `#${path}`, "aria-current": path === current ? "page" : null }, label);
      link.addEventListener("click", () => {
        if (path === "") {
          link.href = `#${graphLink}`;
        } else if (!location.hash.startsWith("#/")) {
          graphLink = location.hash.slice(1);
        }
      });
      return link;
    }),
  );
  if (current !== "") {
    document.title = `${VIEWS.find(([path]) => path === current)?.[1] ?? ""} – Saltern`;
  }
}

const SYSTEM_IS_DARK = "(prefers-color-scheme: dark)";

/** Choices of colours: when the dark ones apply. */
const THEMES = /** @type {Record<string, string>} */ ({ system: SYSTEM_IS_DARK, light: "not all", dark: "all" });

/** Where the chosen colours are kept in the browser. */
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
      // Without storage the choice lasts until the page is left.
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
    const status = /** @type {{ status: string, problems?: { reason: string }[] }} */ (await call("/api/status"));
    const problems = status.problems ?? [];
    health.className = `health ${problems.length ? "warn" : "good"}`;
    health.textContent = status.status;
    health.title = problems.map(({ reason }) => reason).join("\n");
  } catch {
    health.className = "health bad";
    health.textContent = "no response";
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
 * Aggregators that are used most come first.
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
  try {
    await readVocabulary();
  } catch (error) {
    fill(byId("content"), el("div", { class: "page" }, problemBox(error, "The API of this daemon cannot be used")));
    return;
  }
  window.addEventListener("hashchange", show);
  show();
  byId("skip").addEventListener("click", (event) => {
    // The address is the view's.
    event.preventDefault();
    byId("content").focus();
  });
  void showVersion().catch(() => {});
  void showHealth();
  setInterval(() => void (document.hidden || showHealth()), HEALTH_MS);
}

void start();
