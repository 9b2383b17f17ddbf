/** @file The form for the axes, the title and the drawing of a graph. Edits the view in place. */

import { check, el, field, select, textField } from "./dom.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").Axis} Axis */

/**
 * @param {View} view
 * @param {{ onDrawing: () => void, onQuery: () => void }} events the result must be drawn again, or the query sent again
 * @returns {HTMLElement}
 */
export function axisForm(view, { onDrawing, onQuery }) {
  return el(
    "details",
    { open: view.axes.some((axis) => axis.log || axis.label || axis.min !== null || axis.max !== null) || view.title !== "" },
    el("summary", null, "Axes and drawing"),
    el(
      "div",
      { class: "stack" },
      field("Title", textField(view.title, (value) => {
        view.title = value;
        onDrawing();
      })),
      axisRow(view.axes[0], "Left", onDrawing),
      axisRow(view.axes[1], "Right", onDrawing),
      el(
        "div",
        { class: "row" },
        check("join gaps", view.joinGaps, (value) => {
          view.joinGaps = value;
          onDrawing();
        }, "Draw lines across times without points"),
        check("global annotations", view.globals, (value) => {
          view.globals = value;
          onQuery();
        }),
      ),
    ),
  );
}

/**
 * @param {Axis} axis
 * @param {string} name
 * @param {() => void} onChange
 * @returns {HTMLElement}
 */
function axisRow(axis, name, onChange) {
  const bound = (/** @type {"min" | "max"} */ which) =>
    textField(axis[which] === null ? "" : String(axis[which]), (value) => {
      axis[which] = value !== "" && Number.isFinite(Number(value)) ? Number(value) : null;
      onChange();
    }, { placeholder: "auto", inputmode: "decimal" });
  return el(
    "div",
    { class: "grid4" },
    field(`${name}: label`, textField(axis.label, (value) => {
      axis.label = value;
      onChange();
    })),
    field("from", bound("min")),
    field("to", bound("max")),
    field("scale", select([["linear", "linear"], ["log", "log"]], axis.log ? "log" : "linear", (value) => {
      axis.log = value === "log";
      onChange();
    })),
  );
}
