/** @file Stacked series: each is drawn on top of the sum of the previous series. */

import { shownPoints } from "./draw.js";

/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./draw.js").Plot} Plot */
/** @typedef {import("./scale.js").ValueScale} ValueScale */

/** @typedef {{ series: Series, tops: Float64Array, bases: Float64Array }} Layer */

/** @typedef {{ times: Float64Array, layers: Layer[], least: number, greatest: number }} Stack */

/**
 * Sums series at common times: the times of all points, or one time per pixel column if there are more. Between two points, a
 * series has the value of the connecting line; in a gap it has no value.
 *
 * @param {Series[]} stacked
 * @param {{ start: number, end: number, left: number, right: number, joinGaps: boolean }} plot
 * @returns {Stack}
 */
export function stackOf(stacked, plot) {
  const times = commonTimes(stacked, plot);
  const sums = new Float64Array(times.length);
  const negative = new Float64Array(times.length);
  let least = 0;
  let greatest = 0;
  const layers = stacked.map((series) => {
    const values = valuesAt(series, times, plot.joinGaps);
    const tops = new Float64Array(times.length);
    const bases = new Float64Array(times.length);
    values.forEach((value, at) => {
      const below = value < 0 ? negative : sums;
      bases[at] = below[at] ?? 0;
      if (value === value) {
        below[at] = (below[at] ?? 0) + value;
      }
      const top = value === value ? (below[at] ?? 0) : NaN;
      tops[at] = top;
      least = top < least ? top : least;
      greatest = top > greatest ? top : greatest;
    });
    return { series, tops, bases };
  });
  return { times, layers, least, greatest };
}

/**
 * @param {Series[]} stacked
 * @param {{ start: number, end: number, left: number, right: number }} plot
 * @returns {Float64Array}
 */
function commonTimes(stacked, plot) {
  const columns = Math.max(2, Math.ceil(plot.right - plot.left));
  const most = columns * 2;
  /** @type {Set<number>} */
  const all = new Set();
  for (const series of stacked) {
    const [from, to] = shownPoints(series, plot);
    for (let at = from; at < to && all.size <= most; at += 1) {
      all.add(series.times[at] ?? 0);
    }
  }
  if (all.size <= most) {
    return Float64Array.from(all).sort();
  }
  const step = (plot.end - plot.start) / (columns - 1);
  return Float64Array.from({ length: columns }, (_, column) => plot.start + column * step);
}

/**
 * @param {Series} series
 * @param {Float64Array} times in order
 * @param {boolean} joinGaps
 * @returns {Float64Array}
 */
function valuesAt(series, times, joinGaps) {
  const found = new Float64Array(times.length).fill(NaN);
  const gap = joinGaps ? Infinity : series.gap;
  let next = 0;
  times.forEach((time, at) => {
    while (next < series.times.length && (series.times[next] ?? 0) < time) {
      next += 1;
    }
    const after = series.times[next];
    if (after === time) {
      found[at] = series.values[next] ?? NaN;
    } else if (next > 0 && after !== undefined) {
      const before = series.times[next - 1] ?? 0;
      const [low, high] = [series.values[next - 1] ?? NaN, series.values[next] ?? NaN];
      if (after - before <= gap) {
        found[at] = low + ((high - low) * (time - before)) / (after - before);
      }
    }
  });
  return found;
}

/**
 * @param {Plot} plot
 * @param {Stack} stack
 * @param {ValueScale} scale
 * @param {(series: Series) => string} colorOf
 */
export function drawStack(plot, stack, scale, colorOf) {
  const { context, start, left } = plot;
  const factor = (plot.right - left) / (plot.end - start);
  const x = (/** @type {number} */ at) => left + ((stack.times[at] ?? 0) - start) * factor;
  for (const { series, tops, bases } of stack.layers) {
    context.fillStyle = colorOf(series);
    context.strokeStyle = colorOf(series);
    for (let from = 0; from < tops.length; from += 1) {
      if (Number.isNaN(tops[from])) {
        continue;
      }
      let to = from;
      while (to + 1 < tops.length && !Number.isNaN(tops[to + 1])) {
        to += 1;
      }
      context.beginPath();
      for (let at = from; at <= to; at += 1) {
        context.lineTo(x(at), scale.y(tops[at] ?? 0));
      }
      context.lineWidth = plot.ratio;
      context.stroke();
      // At a gap the layer tapers, while the layers above it come down.
      const base = (/** @type {number} */ at) => {
        const y = scale.y(bases[at] ?? 0);
        context.lineTo(x(at), Number.isNaN(y) ? plot.bottom : y);
      };
      for (let at = Math.min(to + 1, tops.length - 1); at >= Math.max(0, from - 1); at -= 1) {
        base(at);
      }
      context.closePath();
      context.globalAlpha = 0.55;
      context.fill();
      context.globalAlpha = 1;
      from = to;
    }
  }
}
