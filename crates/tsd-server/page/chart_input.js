/**
 * @file Pointer and keyboard input of a chart: hover, zoom by dragging, pan with Shift or a finger, pinch, and the same by keys.
 */

import { firstFrom } from "./draw.js";

/** @typedef {import("./chart.js").Chart} Chart */

/** Maximum pixels that a pointer moves in a click. */
const CLICK = 4;

/** Maximum distance from the mark of an annotation to select it, pixels: for a pointer, and for a finger, which covers more. */
const MARK = 6;
const MARK_BY_FINGER = 18;

/** The shortest time range, in milliseconds. */
const SHORTEST = 10;

/**
 * @param {Chart} chart
 */
export function listen(chart) {
  const { over } = chart;
  /** @type {Map<number, { x: number, y: number }>} */
  const pointers = new Map();
  /**
   * The gesture since the number of pointers last changed. A gesture of several fingers is one change of its initial range.
   *
   * @type {{
   *   mode: "zoom" | "pan" | "pinch", x: number, width: number, start: number, end: number, center: number,
   *   first: { start: number, end: number }, moved: boolean,
   * } | null}
   */
  let drag = null;

  const place = (/** @type {PointerEvent | MouseEvent} */ event) => {
    const box = over.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return a && b ? { width: Math.max(20, Math.abs(a.x - b.x)), x: (a.x + b.x) / 2 } : { width: 1, x: a?.x ?? 0 };
  };
  const begin = (/** @type {"zoom" | "pan" | "pinch"} */ mode) => {
    const { start, end } = chart.data;
    const at = spread();
    drag = { mode, start, end, ...at, center: chart.timeAt(at.x), first: drag?.first ?? { start, end }, moved: drag?.moved ?? false };
    chart.isDragged = true;
  };

  over.addEventListener("pointerdown", (event) => {
    if (event.button > 1) {
      return;
    }
    pointers.set(event.pointerId, place(event));
    over.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      chart.selection = null;
      begin("pinch");
    } else {
      begin(event.pointerType === "touch" || event.shiftKey || event.button === 1 ? "pan" : "zoom");
    }
  });

  over.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!pointers.has(event.pointerId)) {
      chart.cursor = chart.timeAt(at.x);
      chart.cursorY = at.y;
      chart.paintOver();
      return;
    }
    pointers.set(event.pointerId, at);
    if (!drag) {
      return;
    }
    const { x, width } = spread();
    drag.moved ||= Math.abs(x - drag.x) > CLICK || Math.abs(width - drag.width) > CLICK;
    if (drag.mode === "zoom") {
      chart.selection = drag.moved ? [drag.center, chart.timeAt(at.x)] : null;
      chart.cursor = chart.timeAt(at.x);
      chart.cursorY = at.y;
      chart.paintOver();
      return;
    }
    // Keeps the time under the fingers in place.
    const factor = drag.mode === "pinch" ? drag.width / width : 1;
    const center = drag.center + (drag.x - x) * chart.msPerPixel(drag.end - drag.start) * factor;
    chart.preview(center - (drag.center - drag.start) * factor, center + (drag.end - drag.center) * factor);
  });

  const end = (/** @type {PointerEvent} */ event) => {
    if (!pointers.delete(event.pointerId) || !drag) {
      return;
    }
    if (pointers.size > 0) {
      begin("pan");
      return;
    }
    const { mode, first, moved } = drag;
    const selected = chart.selection;
    drag = null;
    chart.isDragged = false;
    chart.selection = null;
    if (event.type === "pointercancel") {
      chart.preview(first.start, first.end);
    } else if (mode === "zoom" && selected) {
      choose(chart, Math.min(...selected), Math.max(...selected));
    } else if (mode !== "zoom" && moved) {
      choose(chart, chart.data.start, chart.data.end);
    } else {
      chart.preview(first.start, first.end);
      click(chart, place(event), event);
    }
    chart.paintOver();
  };
  over.addEventListener("pointerup", end);
  over.addEventListener("pointercancel", end);
  over.addEventListener("pointerleave", (event) => {
    // A lifted finger also leaves the chart, but the user still reads the marks.
    if (pointers.size === 0 && event.pointerType !== "touch") {
      chart.cursor = null;
      chart.paintOver();
    }
  });
  over.addEventListener("dblclick", () => zoom(chart, 2, null));
  // Without a modifier key, the wheel scrolls the page.
  over.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(chart, event.deltaY > 0 ? 1.25 : 0.8, chart.timeAt(place(event).x));
      } else if (event.shiftKey) {
        event.preventDefault();
        pan(chart, Math.sign(event.deltaY || event.deltaX) * 0.1);
      }
    },
    { passive: false },
  );
  over.addEventListener("keydown", (event) => {
    if (key(chart, event)) {
      event.preventDefault();
    }
  });
  over.addEventListener("blur", () => {
    chart.cursor = null;
    chart.paintOver();
  });
}

/**
 * @param {Chart} chart
 * @param {{ x: number, y: number }} at
 * @param {PointerEvent} event
 */
function click(chart, at, event) {
  const annotation = chart.annotationAt(at.x, event.pointerType === "touch" ? MARK_BY_FINGER : MARK);
  chart.chosen = chart.timeAt(at.x);
  if (event.altKey) {
    chart.events.onAnnotate(chart.chosen);
  } else if (annotation && at.y < 40) {
    chart.events.onAnnotation(annotation);
  } else {
    chart.cursor = chart.chosen;
    chart.cursorY = at.y;
  }
}

/**
 * @param {Chart} chart
 * @param {number} start
 * @param {number} end
 */
function choose(chart, start, end) {
  if (end - start < SHORTEST) {
    const middle = (start + end) / 2;
    [start, end] = [middle - SHORTEST / 2, middle + SHORTEST / 2];
  }
  // Full seconds are enough unless the range is shorter than a minute.
  const unit = end - start >= 60_000 ? 1000 : 1;
  start = Math.max(0, Math.floor(start / unit) * unit);
  end = Math.ceil(end / unit) * unit;
  chart.preview(start, end);
  chart.events.onRange(start, end);
}

/**
 * @param {Chart} chart
 * @param {number} factor of the length of the time range
 * @param {number | null} around the time that keeps its position
 */
export function zoom(chart, factor, around) {
  const { start, end } = chart.data;
  const center = around ?? (start + end) / 2;
  choose(chart, center - (center - start) * factor, center + (end - center) * factor);
}

/**
 * @param {Chart} chart
 * @param {number} share of the time range
 */
export function pan(chart, share) {
  const { start, end } = chart.data;
  const by = (end - start) * share;
  choose(chart, start + by, end + by);
}

/**
 * @param {Chart} chart
 * @param {KeyboardEvent} event
 * @returns {boolean} true if the key was for the chart
 */
function key(chart, event) {
  const { start, end } = chart.data;
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return false;
  }
  switch (event.key) {
    case "ArrowLeft":
    case "ArrowRight": {
      const sign = event.key === "ArrowLeft" ? -1 : 1;
      if (event.shiftKey) {
        pan(chart, sign * 0.25);
      } else {
        move(chart, sign);
      }
      return true;
    }
    case "Home":
      chart.cursor = start;
      break;
    case "End":
      chart.cursor = end;
      break;
    case "+":
    case "=":
      zoom(chart, 0.5, chart.cursor);
      return true;
    case "-":
      zoom(chart, 2, chart.cursor);
      return true;
    case "a":
    case "A":
      chart.events.onAnnotate(chart.cursor ?? (start + end) / 2);
      return true;
    case "Enter": {
      const annotation = chart.cursor === null ? null : chart.annotationAt(chart.xOf(chart.cursor), MARK_BY_FINGER);
      if (annotation) {
        chart.events.onAnnotation(annotation);
      }
      return Boolean(annotation);
    }
    case "Escape":
      chart.cursor = null;
      break;
    default:
      return false;
  }
  chart.cursorY = null;
  chart.chosen = chart.cursor;
  chart.paintOver();
  chart.speak();
  return true;
}

/**
 * Moves the cursor to the next or previous point of any series, or by a hundredth of the range if there is no such point.
 *
 * @param {Chart} chart
 * @param {number} sign
 */
function move(chart, sign) {
  const { start, end, series } = chart.data;
  const least = (end - start) / 200;
  const from = chart.cursor ?? (sign > 0 ? start - least : end + least);
  let best = from + sign * Infinity;
  for (const { hidden, times } of series) {
    // Skips points within a pixel or two.
    const at = sign > 0 ? firstFrom(times, from + least) : firstFrom(times, from - least + 1e-3) - 1;
    const time = times[at];
    if (!hidden && time !== undefined && (time - best) * sign < 0) {
      best = time;
    }
  }
  if (!Number.isFinite(best)) {
    best = from + (sign * (end - start)) / 100;
  }
  chart.cursor = Math.max(start, Math.min(end, best));
  chart.chosen = chart.cursor;
  chart.cursorY = null;
  chart.paintOver();
  chart.speak();
}
