/** @file Annotations: the dialog that creates, changes or deletes an annotation, and the list of a view's annotations. */

import { callText } from "./api.js";
import { problemBox } from "./cost.js";
import { button, el, field, fill, keepFocus, select, textField } from "./dom.js";
import { labelOf } from "./result.js";
import { sortableTable } from "./table.js";
import { parseTime, timeExpression, timeText, zonedTime } from "./time.js";

/** @typedef {import("./result.js").Annotation} Annotation */
/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./table.js").Order} Order */

/** Maximum annotations in the list. The chart shows all. */
const MOST_LISTED = 200;

/** The annotations of a view, for users who cannot point at their marks. */
export class AnnotationList {
  /** @param {(annotation: Annotation) => void} onOpen */
  constructor(onOpen) {
    this.onOpen = onOpen;
    /** @type {Order | null} */
    this.order = null;
    this.body = el("div", { class: "scroll short" });
    this.element = el("div", { class: "panel", hidden: true }, this.body);
  }

  /**
   * @param {Annotation[]} annotations
   * @param {Series[]} series
   * @param {string} zone
   */
  show(annotations, series, zone) {
    this.element.hidden = annotations.length === 0;
    keepFocus(this.body, () => this.render(annotations, series, zone));
  }

  /**
   * @param {Annotation[]} annotations
   * @param {Series[]} series
   * @param {string} zone
   */
  render(annotations, series, zone) {
    const of = (/** @type {Annotation} */ { tsuid }) => {
      const one = series.find(({ tsuids }) => tsuid !== "" && tsuids.includes(tsuid));
      return one ? labelOf(one) : tsuid || "all series";
    };
    const time = (/** @type {number} */ ms) => el("span", { class: "mono" }, timeText(ms, zone));
    const table = sortableTable({
      label: "Annotations",
      rows: annotations.slice(0, MOST_LISTED),
      order: this.order,
      onOrder: (order) => {
        this.order = order;
        this.show(annotations, series, zone);
      },
      columns: [
        { label: `time (${zone})`, cell: ({ startMs }) => time(startMs), sort: ({ startMs }) => startMs },
        { label: `until (${zone})`, cell: ({ endMs }) => (endMs ? time(endMs) : ""), sort: ({ endMs }) => endMs },
        {
          label: "annotation",
          class: "name",
          cell: (annotation) =>
            button(annotation.description || "(no description)", () => this.onOpen(annotation), { class: "link", title: "Change or delete it" }),
          sort: ({ description }) => description,
        },
        { label: "notes", class: "name", cell: ({ notes }) => notes, sort: ({ notes }) => notes },
        { label: "of", class: "name", cell: of, sort: of },
      ],
    });
    const more = annotations.length - MOST_LISTED;
    fill(this.body, table, more > 0 ? el("p", { class: "hint" }, `${more} more annotations are on the chart, but not listed.`) : null);
  }
}

/**
 * Opens the dialog for an annotation and stores it.
 *
 * @param {object} options
 * @param {number} options.ms its time
 * @param {string} options.zone
 * @param {Series[]} options.series series that it may belong to
 * @param {Annotation | null} options.annotation the annotation to change
 * @param {() => void} options.onStored
 */
export function annotationDialog({ ms, zone, series, annotation, onStored }) {
  const text = (/** @type {string} */ value, /** @type {import("./dom.js").Props} */ props = {}) => textField(value, () => {}, props);
  const start = text(timeExpression(annotation?.startMs ?? Math.floor(ms / 1000) * 1000, zone), { disabled: annotation !== null });
  const end = text(annotation?.endMs ? timeExpression(annotation.endMs, zone) : "", { placeholder: "none: a point in time" });
  const description = text(annotation?.description ?? "", { name: "description", autofocus: true });
  const notes = el("textarea", { rows: 3 });
  notes.value = annotation?.notes ?? "";
  // An annotation belongs to one series, so a group of several series cannot have one.
  const single = series.filter((one) => one.tsuids.length === 1);
  /** @type {[string, string][]} */
  const targets = [["", "all series (global)"], ...single.map((one) => /** @type {[string, string]} */ ([one.tsuids[0] ?? "", labelOf(one)]))];
  const target = select(targets, annotation?.tsuid ?? "", () => {}, { disabled: annotation !== null });
  const problem = el("div");
  const dialog = el("dialog", { "aria-label": "Annotation" });

  const store = async () => {
    const startMs = annotation?.startMs ?? parseTime(start.value.trim(), zone, Date.now());
    const endMs = end.value.trim() === "" ? 0 : parseTime(end.value.trim(), zone, Date.now());
    if (startMs === null || endMs === null) {
      fill(problem, problemBox(new Error(`Times are written as 2026/01/31-12:00:00 in ${zone}, 10m-ago or in seconds since 1970`)));
      return;
    }
    const body = {
      startTime: annotation?.startTime ?? (startMs % 1000 ? startMs : startMs / 1000),
      ...(endMs ? { endTime: endMs % 1000 ? endMs : endMs / 1000 } : {}),
      description: description.value.trim(),
      notes: notes.value,
      ...(target.value ? { tsuid: target.value } : {}),
      ...(annotation?.custom ? { custom: annotation.custom } : {}),
    };
    // A POST would keep the old values of empty fields.
    await attempt(() => callText("/api/annotation", { method: annotation ? "PUT" : "POST", body }));
  };
  const remove = async () => {
    // The daemon cuts a time in the query string to seconds.
    const body = { startTime: annotation?.startTime, ...(annotation?.tsuid ? { tsuid: annotation.tsuid } : {}) };
    await attempt(() => callText("/api/annotation", { method: "DELETE", body }));
  };
  const attempt = async (/** @type {() => Promise<unknown>} */ change) => {
    try {
      await change();
      dialog.close();
      onStored();
    } catch (error) {
      fill(problem, problemBox(error));
    }
  };

  fill(
    dialog,
    el(
      "div",
      { class: "stack" },
      el("h2", null, annotation ? `Annotation of ${zonedTime(annotation.startMs, zone)}` : "New annotation"),
      el("div", { class: "grid2" }, field(`Time (${zone})`, start), field(`End (${zone})`, end)),
      field("Description", description),
      field("Notes", notes),
      field("Of", target),
      problem,
      el(
        "div",
        { class: "row" },
        annotation ? button("Delete", () => void remove(), { class: "danger" }) : null,
        el("span", { class: "end row" }, button("Cancel", () => dialog.close()), button("Store", () => void store(), { class: "primary" })),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("keydown", (event) => {
    // In the notes, Enter begins a new line.
    if (event.key === "Enter" && (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void store();
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  description.focus();
}
