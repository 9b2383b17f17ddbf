/**
 * @file The chart: a canvas with axes, series and annotations, and a second canvas above it for marks that follow the pointer.
 * `chart_input.js` turns pointer and keys into calls of its methods.
 */

import { COLOURS_CHANGED, el, fill } from "./dom.js";
import { drawAnnotations, drawSeries, firstFrom, shownPoints } from "./draw.js";
import { drawStack, stackOf } from "./stack.js";
import { exact, short, tick } from "./format.js";
import { axisRange, linearTicks, logTicks, timeTicks, valueScale } from "./scale.js";
import { timeText, zonedTime } from "./time.js";
import { labelOf } from "./result.js";
import { listen } from "./chart_input.js";

/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./result.js").Annotation} Annotation */
/** @typedef {import("./scale.js").ValueScale} ValueScale */
/** @typedef {import("./draw.js").Plot} Plot */
/** @typedef {import("./view.js").Axis} Axis */

/**
 * @typedef {object} ChartData
 * @property {Series[]} series
 * @property {Annotation[]} annotations
 * @property {number} start
 * @property {number} end
 * @property {string} zone
 * @property {[Axis, Axis]} axes
 * @property {boolean} joinGaps
 */

/**
 * @typedef {object} ChartEvents
 * @property {(start: number, end: number) => void} onRange the user chose another time range
 * @property {(ms: number) => void} onAnnotate the user wants to annotate this time
 * @property {(annotation: Annotation) => void} onAnnotation the user chose an annotation
 * @property {(series: Series | null) => void} onNear the pointer is near this series
 */

/** @typedef {{ plot: Plot, scales: [ValueScale, ValueScale], stack: import("./stack.js").Stack | null }} Layout */

/** Maximum series in a tip. */
const MOST_IN_TIP = 10;

/** Pixels below the plot: the times of the axis, and the name of their zone. */
const AXIS_ROW = 24;
const ZONE_ROW = 14;

/** Maximum distance of a point that counts as under the pointer, pixels. */
const NEAR = 40;

/** Maximum distance of the pointer at which the text of an annotation is shown, pixels. */
const NEAR_MARK = 6;

export class Chart {
  /**
   * @param {ChartEvents} events
   * @param {string} label
   */
  constructor(events, label) {
    this.events = events;
    /** @type {ChartData} */
    this.data = {
      series: [],
      annotations: [],
      start: Date.now() - 36e5,
      end: Date.now(),
      zone: "UTC",
      axes: [
        { min: null, max: null, log: false, label: "" },
        { min: null, max: null, log: false, label: "" },
      ],
      joinGaps: false,
    };
    this.base = el("canvas", { "aria-hidden": "true" });
    this.over = el("canvas", {
      class: "over",
      tabindex: "0",
      role: "application",
      "aria-label": label,
      "aria-description":
        "Left and right move the cursor, with Shift the time range. Plus and minus zoom, A adds an annotation, Enter opens one, Escape ends.",
    });
    this.tip = el("div", { class: "tip", hidden: true });
    this.note = el("div", { class: "note", hidden: true });
    this.spoken = el("div", { class: "skip", "aria-live": "polite" });
    this.element = el("div", { class: "chart" }, this.base, this.over, this.note, this.tip, this.spoken);
    /** @type {Layout | null} */
    this.layout = null;
    /** Time under the pointer or the keyboard cursor. @type {number | null} */
    this.cursor = null;
    /** @type {number | null} */
    this.cursorY = null;
    /** Last time chosen by a click or keys. @type {number | null} */
    this.chosen = null;
    /** Time range of the current drag. @type {[number, number] | null} */
    this.selection = null;
    /** Milliseconds of the last drawing. */
    this.drawMs = 0;
    this.width = 0;
    this.height = 0;
    this.waits = false;
    this.isDragged = false;
    listen(this);
    new ResizeObserver(() => this.resize()).observe(this.element);
    addEventListener(COLOURS_CHANGED, () => this.repaint());
  }

  /** @param {ChartData} data */
  show(data) {
    // A result that arrives during a drag does not move the chart.
    this.data = this.isDragged ? { ...data, start: this.data.start, end: this.data.end } : data;
    this.repaint();
  }

  /** @param {string} text to show in place of series */
  setNote(text) {
    this.note.textContent = text;
    this.note.hidden = text === "";
  }

  /** Schedules one drawing before the next frame, however often it is called. */
  repaint() {
    if (!this.waits) {
      this.waits = true;
      requestAnimationFrame(() => {
        this.waits = false;
        this.paint();
      });
    }
  }

  resize() {
    const { width, height } = this.element.getBoundingClientRect();
    if (width !== this.width || height !== this.height) {
      this.width = width;
      this.height = height;
      this.paint();
    }
  }

  /** Returns the width of the plot in pixels, which decides the interval of points. */
  plotWidth() {
    return Math.max(200, (this.width || 900) - 70);
  }

  paint() {
    if (!this.width || !this.height) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    const context = this.base.getContext("2d", { willReadFrequently: true });
    if (!context) {
      return;
    }
    const began = performance.now();
    this.layout = paintChart(context, this.base.width, this.base.height, ratio, this.data, getComputedStyle(this.element));
    // Waits until the pixels are drawn.
    context.getImageData(0, 0, 1, 1);
    this.drawMs = performance.now() - began;
    this.element.dataset["drawMs"] = this.drawMs.toFixed(1);
    this.element.dataset["zone"] = this.data.zone;
    this.element.dataset["points"] = String(this.data.series.reduce((sum, series) => sum + (series.hidden ? 0 : series.times.length), 0));
    this.paintOver();
  }

  /**
   * @param {number} range length of the plot's time range, milliseconds
   * @returns {number}
   */
  msPerPixel(range) {
    const { left, right, ratio } = this.layout?.plot ?? { left: 0, right: this.plotWidth(), ratio: 1 };
    return (range * ratio) / (right - left);
  }

  /**
   * @param {number} x pixels of the page from the left of the chart
   * @returns {number}
   */
  timeAt(x) {
    if (!this.layout) {
      return this.data.start;
    }
    const { left, right, start, end, ratio } = this.layout.plot;
    const share = (x * ratio - left) / (right - left);
    return start + Math.max(0, Math.min(1, share)) * (end - start);
  }

  /**
   * @param {number} ms
   * @returns {number} pixels of the page from the left of the chart
   */
  xOf(ms) {
    if (!this.layout) {
      return 0;
    }
    const { left, right, start, end, ratio } = this.layout.plot;
    return (left + ((ms - start) / (end - start)) * (right - left)) / ratio;
  }

  /**
   * Shows another time range at once, with the present points.
   *
   * @param {number} start
   * @param {number} end
   */
  preview(start, end) {
    this.data = { ...this.data, start, end };
    this.repaint();
  }

  /**
   * Returns the annotation whose mark is nearest to this position.
   *
   * @param {number} x
   * @param {number} most maximum distance of its mark, pixels
   * @returns {Annotation | null}
   */
  annotationAt(x, most) {
    const distance = (/** @type {Annotation} */ annotation) => Math.abs(this.xOf(annotation.startMs) - x);
    const [nearest] = this.data.annotations.filter((annotation) => distance(annotation) <= most).sort((a, b) => distance(a) - distance(b));
    return nearest ?? null;
  }

  paintOver() {
    const context = this.over.getContext("2d");
    if (!context || !this.layout) {
      return;
    }
    const { plot } = this.layout;
    const style = getComputedStyle(this.element);
    context.clearRect(0, 0, this.over.width, this.over.height);
    if (this.selection) {
      const [a, b] = this.selection.map((ms) => this.xOf(ms) * plot.ratio);
      context.fillStyle = style.getPropertyValue("--select");
      context.fillRect(Math.min(a ?? 0, b ?? 0), plot.top, Math.abs((b ?? 0) - (a ?? 0)), plot.bottom - plot.top);
    }
    if (this.cursor === null) {
      this.tip.hidden = true;
      this.events.onNear(null);
      return;
    }
    const x = Math.round(this.xOf(this.cursor) * plot.ratio) + 0.5;
    context.strokeStyle = style.getPropertyValue("--axis");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, plot.top);
    context.lineTo(x, plot.bottom);
    context.stroke();
    const near = this.nearSeries(this.cursor);
    for (const found of near) {
      context.fillStyle = colorOf(found.series, style);
      context.beginPath();
      context.arc(found.x, found.y, 3.2 * plot.ratio, 0, 2 * Math.PI);
      context.fill();
    }
    this.showTip(near);
    this.events.onNear(near[0]?.series ?? null);
  }

  /**
   * Returns points near a time, nearest to the pointer first.
   *
   * @param {number} ms
   * @returns {{ series: Series, x: number, y: number, at: number, distance: number }[]}
   */
  nearSeries(ms) {
    if (!this.layout) {
      return [];
    }
    const { plot, scales, stack } = this.layout;
    const pointerY = this.cursorY === null ? null : this.cursorY * plot.ratio;
    const found = [];
    for (const series of this.data.series) {
      if (series.hidden || series.times.length === 0) {
        continue;
      }
      const at = nearestPoint(series, ms);
      const time = series.times[at] ?? 0;
      const x = this.xOf(time) * plot.ratio;
      const value = series.values[at] ?? NaN;
      const layer = series.style === "stack" ? stack?.layers.find((known) => known.series === series) : undefined;
      const top = layer && stack ? (layer.tops[Math.min(stack.times.length - 1, firstFrom(stack.times, time))] ?? value) : value;
      const y = (scales[series.axis - 1] ?? scales[0]).y(top);
      if (Math.abs(x - this.xOf(ms) * plot.ratio) > NEAR * plot.ratio || Number.isNaN(value) || Number.isNaN(y)) {
        continue;
      }
      found.push({ series, x, y, at, distance: pointerY === null ? 0 : Math.abs(y - pointerY) });
    }
    if (pointerY !== null) {
      found.sort((a, b) => a.distance - b.distance);
    }
    return found;
  }

  /** @param {{ series: Series, x: number, at: number }[]} near */
  showTip(near) {
    const { zone } = this.data;
    const first = near[0];
    const ms = first ? (first.series.times[first.at] ?? 0) : Math.round(this.cursor ?? 0);
    const style = getComputedStyle(this.element);
    const rows = near.slice(0, MOST_IN_TIP).map(({ series, at }, index) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.color = colorOf(series, style);
      const time = series.times[at] ?? 0;
      const other = time === ms ? "" : ` (${timeText(time, zone)})`;
      return el(
        "div",
        { class: index === 0 && this.cursorY !== null ? "at near" : "at" },
        swatch,
        el("span", null, labelOf(series) + other),
        el("span", { class: "num" }, exactOrShort(series.values[at] ?? NaN)),
      );
    });
    const note = this.annotationAt(this.xOf(this.cursor ?? 0), NEAR_MARK);
    fill(
      this.tip,
      el("div", { class: "when" }, zonedTime(ms, zone)),
      note ? el("div", null, `▼ ${note.description}`) : null,
      rows,
      near.length > MOST_IN_TIP ? el("div", { class: "dim" }, `and ${near.length - MOST_IN_TIP} more`) : null,
    );
    this.tip.hidden = false;
    const box = this.tip.getBoundingClientRect();
    const x = this.xOf(this.cursor ?? 0);
    const right = x + 14 + box.width < this.width;
    const left = right ? x + 14 : Math.max(0, x - 14 - box.width);
    const top = Math.max(4, Math.min(this.height - box.height - 4, (this.cursorY ?? 20) - box.height / 2));
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  /** Announces the points under the keyboard cursor. */
  speak() {
    const near = this.cursor === null ? [] : this.nearSeries(this.cursor);
    const values = near.slice(0, 3).map(({ series, at }) => `${labelOf(series)} ${short(series.values[at] ?? NaN)}`);
    this.spoken.textContent = this.cursor === null ? "" : [zonedTime(Math.round(this.cursor), this.data.zone), ...values].join(", ");
  }

  /**
   * Renders the chart as a picture with title and legend.
   *
   * @param {string} title
   * @returns {HTMLCanvasElement}
   */
  picture(title) {
    const ratio = 2;
    const width = Math.max(800, Math.round(this.width));
    const height = Math.max(360, Math.round(this.height));
    const shown = this.data.series.filter((series) => !series.hidden).slice(0, 30);
    const head = title ? 30 : 8;
    const canvas = el("canvas", { width: width * ratio, height: (head + height + shown.length * 18 + 10) * ratio });
    const context = canvas.getContext("2d");
    if (!context) {
      return canvas;
    }
    const style = getComputedStyle(this.element);
    const color = (/** @type {string} */ name) => style.getPropertyValue(name);
    context.fillStyle = color("--panel");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = color("--text");
    context.font = `600 ${15 * ratio}px sans-serif`;
    context.fillText(title, 12 * ratio, 21 * ratio);
    const inner = el("canvas", { width: width * ratio, height: height * ratio });
    const drawn = inner.getContext("2d");
    if (drawn) {
      paintChart(drawn, inner.width, inner.height, ratio, this.data, style);
      context.drawImage(inner, 0, head * ratio);
    }
    context.font = `${12 * ratio}px sans-serif`;
    shown.forEach((series, index) => {
      const y = (head + height + 14 + index * 18) * ratio;
      context.fillStyle = colorOf(series, style);
      context.fillRect(12 * ratio, y - 6 * ratio, 14 * ratio, 4 * ratio);
      context.fillStyle = color("--text");
      context.fillText(labelOf(series), 34 * ratio, y);
    });
    return canvas;
  }
}

/**
 * @param {number} value
 * @returns {string}
 */
function exactOrShort(value) {
  const text = exact(value);
  return text.length <= 12 ? text : short(value);
}

/**
 * @param {Series} series
 * @param {number} ms
 * @returns {number}
 */
function nearestPoint(series, ms) {
  const after = Math.min(firstFrom(series.times, ms), series.times.length - 1);
  const before = Math.max(0, after - 1);
  return Math.abs((series.times[before] ?? 0) - ms) < Math.abs((series.times[after] ?? 0) - ms) ? before : after;
}

/** Colours of the theme. Further series get computed hues. */
const THEME_COLORS = 12;

/**
 * @param {Series} series
 * @param {CSSStyleDeclaration} style
 * @returns {string}
 */
export function colorOf(series, style) {
  if (series.color < THEME_COLORS) {
    return style.getPropertyValue(`--s${series.color}`).trim();
  }
  const lightness = style.colorScheme.includes("dark") ? 68 : 40;
  // The golden angle: neighbours differ, and no hue repeats soon.
  return `hsl(${Math.round((series.color * 137.508) % 360)} 60% ${lightness}%)`;
}

/**
 * Draws everything except the marks that follow the pointer.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {number} ratio
 * @param {ChartData} data
 * @param {CSSStyleDeclaration} style
 * @returns {Layout}
 */
function paintChart(context, width, height, ratio, data, style) {
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  context.fillStyle = color("--panel");
  context.fillRect(0, 0, width, height);
  context.font = `${11 * ratio}px ${style.fontFamily}`;
  const shown = data.series.filter((series) => !series.hidden);
  const top = 14 * ratio;
  const bottom = height - (AXIS_ROW + ZONE_ROW) * ratio;
  const span = { start: data.start, end: data.end, left: 0, right: width, joinGaps: data.joinGaps };
  const stacked = shown.filter((series) => series.style === "stack");
  const stack = stacked.length ? stackOf(stacked, span) : null;
  const stackAxis = stacked[0]?.axis ?? 1;
  const uses = [1, 2].map((axis) => shown.some((series) => series.axis === axis));
  const scales = /** @type {[ValueScale, ValueScale]} */ (
    data.axes.map((axis, index) => {
      const own = shown.filter((series) => series.axis === index + 1 && series.style !== "stack");
      const onStack = stack && stackAxis === index + 1 ? stack : null;
      const [low, high] = extent(own, data, onStack, axis.log);
      const fromZero = Boolean(onStack) || own.some((series) => series.style === "area");
      const range = axisRange(axis, low, high, fromZero);
      return valueScale(range[0], range[1], axis.log, top, bottom);
    })
  );
  const ticks = scales.map((scale) => valueTicks(scale, Math.max(2, (bottom - top) / (44 * ratio))));
  const room = ticks.map((list, index) => (uses[index] ? Math.max(0, ...list.map(({ label }) => context.measureText(label).width)) : 0));
  const labels = data.axes.map((axis, index) => (uses[index] && axis.label ? 16 * ratio : 0));
  const left = (uses[0] || !uses[1] ? Math.max(30 * ratio, (room[0] ?? 0) + 14 * ratio) : 14 * ratio) + (labels[0] ?? 0);
  const right = width - (uses[1] ? (room[1] ?? 0) + 14 * ratio + (labels[1] ?? 0) : 14 * ratio);
  /** @type {Plot} */
  const plot = { context, left, right, top, bottom, start: data.start, end: data.end, ratio, joinGaps: data.joinGaps };

  const times = timeTicks(data.start, data.end, (right - left) / (92 * ratio), data.zone);
  const x = (/** @type {number} */ ms) => left + ((ms - data.start) / (data.end - data.start)) * (right - left);
  context.lineWidth = Math.max(1, Math.round(ratio));
  const crisp = (/** @type {number} */ at) => Math.round(at) + (context.lineWidth % 2) / 2;
  const line = (/** @type {number} */ x1, /** @type {number} */ y1, /** @type {number} */ x2, /** @type {number} */ y2) => {
    context.beginPath();
    context.moveTo(crisp(x1), crisp(y1));
    context.lineTo(crisp(x2), crisp(y2));
    context.stroke();
  };
  context.strokeStyle = color("--grid");
  for (const at of times) {
    line(x(at.at), top, x(at.at), bottom);
  }
  const gridAxis = uses[0] || !uses[1] ? 0 : 1;
  for (const { y } of ticks[gridAxis] ?? []) {
    line(left, y, right, y);
  }
  context.strokeStyle = color("--line-strong");
  line(left, bottom, right, bottom);

  context.textBaseline = "middle";
  ticks.forEach((list, index) => {
    if (!uses[index] && index !== gridAxis) {
      return;
    }
    context.fillStyle = color("--dim");
    context.textAlign = index === 0 ? "right" : "left";
    for (const { y, label } of list) {
      context.fillText(label, index === 0 ? left - 7 * ratio : right + 7 * ratio, y);
    }
  });
  context.textAlign = "center";
  let free = -Infinity;
  for (const at of times) {
    context.fillStyle = color(at.strong ? "--text" : "--dim");
    const half = context.measureText(at.label).width / 2;
    const center = Math.max(half, Math.min(width - half, x(at.at)));
    if (center - half > free) {
      context.fillText(at.label, center, bottom + 13 * ratio);
      free = center + half + 8 * ratio;
    }
  }
  context.textAlign = "right";
  context.fillStyle = color("--dim");
  context.fillText(data.zone, right, bottom + (AXIS_ROW + ZONE_ROW / 2 - 2) * ratio);
  context.textAlign = "center";
  data.axes.forEach((axis, index) => {
    if (labels[index]) {
      context.save();
      context.fillStyle = color("--dim");
      context.translate(index === 0 ? 9 * ratio : width - 9 * ratio, (top + bottom) / 2);
      context.rotate(index === 0 ? -Math.PI / 2 : Math.PI / 2);
      context.fillText(axis.label, 0, 0);
      context.restore();
    }
  });

  context.save();
  context.beginPath();
  context.rect(left, top - 3 * ratio, right - left, bottom - top + 4 * ratio);
  context.clip();
  if (stack) {
    drawStack(plot, stack, scales[stackAxis - 1] ?? scales[0], (series) => colorOf(series, style));
  }
  for (const series of shown) {
    if (series.style !== "stack") {
      drawSeries(plot, series, scales[series.axis - 1] ?? scales[0], colorOf(series, style));
    }
  }
  context.restore();
  drawAnnotations(plot, data.annotations, color("--warn"));
  return { plot, scales, stack };
}

/**
 * Returns the least and the greatest shown value.
 *
 * @param {Series[]} own
 * @param {ChartData} data
 * @param {import("./stack.js").Stack | null} stack
 * @param {boolean} positive counts only positive values, for a logarithmic axis
 * @returns {[number, number]}
 */
function extent(own, data, stack, positive) {
  let low = Infinity;
  let high = -Infinity;
  for (const series of own) {
    const [from, to] = shownPoints(series, data);
    for (let at = from; at < to; at += 1) {
      const value = series.values[at] ?? NaN;
      const time = series.times[at] ?? 0;
      if (time < data.start || time > data.end || (positive && !(value > 0)) || Math.abs(value) === Infinity) {
        continue;
      }
      low = value < low ? value : low;
      high = value > high ? value : high;
    }
  }
  if (stack) {
    low = Math.min(low, positive ? Infinity : stack.least);
    high = Math.max(high, stack.greatest);
  }
  return [low, high];
}

/**
 * @param {ValueScale} scale
 * @param {number} most
 * @returns {{ y: number, label: string }[]}
 */
function valueTicks(scale, most) {
  if (scale.log) {
    return logTicks(scale.low, scale.high, most).map((value) => ({ y: scale.y(value), label: short(value) }));
  }
  const { ticks, step } = linearTicks(scale.low, scale.high, most);
  return ticks.map((value) => ({ y: scale.y(value), label: tick(value, step) }));
}
