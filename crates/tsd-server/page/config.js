/** @file The view of the configuration: every key with its meaning, its value and default, and the source of the value. */

import { ApiFailure, call } from "./api.js";
import { check, el, fill, keepFocus } from "./dom.js";
import { count } from "./format.js";
import { polled } from "./poll.js";
import { orderText, readOrder, sortableTable } from "./table.js";

/** @typedef {{ meaning: string, values: string, default: string | null }} Meaning */
/** @typedef {{ key: string, value: string, source: string, meaning: string, values: string, usual: string }} Setting */

/** @type {import("./table.js").Order} */
const BY_KEY = { column: 0, descending: false };

/** @returns {import("./poll.js").PageView} */
export function config() {
  /** @type {Setting[]} */
  let settings = [];
  let changedOnly = false;
  /** @type {import("./table.js").Order} */
  let order = BY_KEY;
  const table = el("div", { class: "scroll" });
  const found = el("span", { class: "dim", role: "status" });
  const search = el("input", { type: "search", placeholder: "key, value, source or meaning", "aria-label": "Search the configuration" });
  search.addEventListener("input", () => {
    show();
    view.save();
  });
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const rows = settings.filter(
      (setting) =>
        `${setting.key} ${setting.value} ${setting.source} ${setting.meaning}`.toLowerCase().includes(wanted) && (!changedOnly || !setting.source.startsWith("default")),
    );
    found.textContent = `${count(rows.length)} of ${count(settings.length)} keys`;
    const rendered = () =>
      sortableTable({
        label: "Configuration",
        rows,
        order,
        onOrder: (changed) => {
          order = changed;
          show();
          view.save();
        },
        columns: [
          {
            label: "key",
            class: "key",
            cell: (row) => el("span", null, el("code", null, row.key), el("div", { class: "meaning dim", title: row.values }, row.meaning)),
            sort: (row) => row.key,
          },
          { label: "value", class: "name", cell: (row) => el("code", null, row.value), sort: (row) => row.value },
          { label: "default", class: "name", cell: (row) => el("code", { class: "dim" }, row.usual), sort: (row) => row.usual },
          { label: "source", cell: (row) => el("span", { class: row.source.startsWith("default") ? "dim" : "" }, row.source), sort: (row) => row.source },
        ],
      });
    keepFocus(table, () => fill(table, rendered()));
  };
  const changed = check("only what is set", false, (value) => {
    changedOnly = value;
    show();
    view.save();
  });
  const head = el(
    "div",
    { class: "panel-head" },
    search,
    changed,
    el("span", { class: "end" }, found),
  );
  const view = polled("/config", el("div", { class: "panel" }, head, table), 0, async () => {
    const values = /** @type {Record<string, string>} */ (await call("/api/config"));
    /** @type {Record<string, string>} */
    let sources = {};
    /** @type {Record<string, Meaning>} */
    let meanings = {};
    /** @type {unknown} */
    let failure = null;
    try {
      const [named, described] = await Promise.all([call("/api/config/sources"), call("/api/config/keys")]);
      sources = /** @type {Record<string, string>} */ (named ?? {});
      meanings = /** @type {Record<string, Meaning>} */ (described ?? {});
    } catch (error) {
      failure = error instanceof ApiFailure && error.status === 404 ? null : error;
    }
    settings = Object.entries(values).map(([key, value]) => {
      const { meaning = "", values: allowed = "", default: usual = null } = meanings[key] ?? {};
      return { key, value, source: sources[key] ?? "", meaning, values: allowed, usual: usual ?? "" };
    });
    show();
    if (failure) {
      // The values are already shown, without their sources.
      throw failure;
    }
  }, {
    write: () => ({ text: search.value.trim(), set: changedOnly ? "only" : "", sort: orderText(order) === orderText(BY_KEY) ? "" : orderText(order) }),
    read: (state) => {
      search.value = state.get("text") ?? "";
      changedOnly = state.get("set") === "only";
      const box = changed.querySelector("input");
      if (box) {
        box.checked = changedOnly;
      }
      order = readOrder(state.get("sort")) ?? BY_KEY;
      show();
    },
  });
  return view;
}
