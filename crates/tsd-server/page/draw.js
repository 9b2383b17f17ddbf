/**
 * @file Draws series on a canvas.
 *
 * A series with many points becomes one bar per pixel column, from its least to its greatest value there. This keeps its outline,
 * and a bar costs far less than the lines. All coordinates are device pixels.
 */

/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./scale.js").ValueScale} ValueScale */

/**
 * @typedef {object} Plot
 * @property {CanvasRenderingContext2D} context
 * @property {number} left
 * @property {number} right
 * @property {number} top
 * @property {number} bottom
 * @property {number} start milliseconds
 * @property {number} end
 * @property {number} ratio device pixels per pixel of the page
 * @property {boolean} joinGaps
 */

/**
 * Returns the first index whose time is not before `ms`.
 *
 * @param {Float64Array} times
 * @param {number} ms
 * @returns {number}
 */
export function firstFrom(times, ms) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < ms) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/**
 * Returns the range of the points in a plot, plus one point on either side, so that lines reach the edges.
 *
 * @param {Series} series
 * @param {{ start: number, end: number }} plot
 * @returns {[number, number]}
 */
export function shownPoints(series, plot) {
  const from = Math.max(0, firstFrom(series.times, plot.start) - 1);
  const to = Math.min(series.times.length, firstFrom(series.times, plot.end + 1) + 1);
  return [from, to];
}

/**
 * @param {Plot} plot
 * @param {Series} series
 * @param {ValueScale} scale
 * @param {string} color
 */
export function drawSeries(plot, series, scale, color) {
  const { context } = plot;
  context.strokeStyle = color;
  context.fillStyle = color;
  const [from, to] = shownPoints(series, plot);
  if (series.style === "points") {
    drawPoints(plot, series, scale, from, to);
    return;
  }
  if (series.style === "area") {
    fillArea(plot, series, scale, from, to);
  }
  if (to - from > 2 * (plot.right - plot.left)) {
    drawBars(plot, series, scale, from, to);
  } else {
    drawLines(plot, series, scale, from, to);
  }
}

/**
 * @param {Plot} plot
 * @param {Series} series
 * @param {ValueScale} scale
 * @param {number} from
 * @param {number} to
 */
function drawLines(plot, series, scale, from, to) {
  const { context, start, left, ratio } = plot;
  const { times, values } = series;
  const factor = (plot.right - left) / (plot.end - start);
  const gap = plot.joinGaps ? Infinity : series.gap;
  context.lineWidth = 1.5 * ratio;
  context.lineJoin = "round";
  context.beginPath();
  let lastTime = -Infinity;
  let run = 0;
  let lastX = 0;
  let lastY = 0;
  /** @type {number[]} */
  const lone = [];
  const endRun = () => {
    // A line of a single point is invisible, so the point gets a dot.
    if (run === 1) {
      lone.push(lastX, lastY);
    }
    run = 0;
  };
  for (let at = from; at < to; at += 1) {
    const time = times[at] ?? 0;
    const y = scale.y(values[at] ?? NaN);
    if (!(y === y)) {
      if (!plot.joinGaps) {
        endRun();
      }
      continue;
    }
    if (time - lastTime > gap) {
      endRun();
    }
    const x = left + (time - start) * factor;
    const bounded = Math.max(-1e5, Math.min(1e5, y));
    if (run === 0) {
      context.moveTo(x, bounded);
    } else {
      context.lineTo(x, bounded);
    }
    run += 1;
    lastTime = time;
    lastX = x;
    lastY = bounded;
  }
  endRun();
  context.stroke();
  const radius = 2 * ratio;
  for (let at = 0; at < lone.length; at += 2) {
    dot(context, lone[at] ?? 0, lone[at + 1] ?? 0, radius);
  }
  // Dots make few points easier to see.
  if (to - from <= 40) {
    drawPoints(plot, series, scale, from, to);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 */
function dot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

/**
 * @param {Plot} plot
 * @param {Series} series
 * @param {ValueScale} scale
 * @param {number} from
 * @param {number} to
 */
function drawPoints(plot, series, scale, from, to) {
  const { context, start, left, ratio } = plot;
  const factor = (plot.right - left) / (plot.end - start);
  const many = to - from > 2000;
  const size = (many ? 2 : 2.2) * ratio;
  for (let at = from; at < to; at += 1) {
    const y = scale.y(series.values[at] ?? NaN);
    if (!(y >= -1e5 && y <= 1e5)) {
      continue;
    }
    const x = left + ((series.times[at] ?? 0) - start) * factor;
    if (many) {
      context.fillRect(Math.round(x - size / 2), Math.round(y - size / 2), size, size);
    } else {
      dot(context, x, y, size);
    }
  }
}

/**
 * @param {Plot} plot
 * @param {Series} series
 * @param {ValueScale} scale
 * @param {number} from
 * @param {number} to
 */
function drawBars(plot, series, scale, from, to) {
  const { context, start, left } = plot;
  const { times, values } = series;
  const columns = Math.ceil(plot.right - left);
  const factor = (plot.right - left) / (plot.end - start);
  const gap = plot.joinGaps ? Infinity : series.gap;
  const thickness = Math.max(1, Math.round(1.5 * plot.ratio));
  let column = -1;
  let least = 0;
  let greatest = 0;
  let lastValue = NaN;
  let lastTime = -Infinity;
  let lastColumn = -1;
  // The last value before the column, where its bar begins.
  let before = NaN;
  const endColumn = () => {
    if (column < 0 || column > columns) {
      return;
    }
    if (before === before && lastColumn === column - 1) {
      least = Math.min(least, before);
      greatest = Math.max(greatest, before);
    } else if (before === before && lastColumn < column) {
      const [x1, y1, x2, y2] = [left + lastColumn, scale.y(before), left + column, scale.y(least)];
      context.lineWidth = thickness;
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
      context.stroke();
    }
    const high = scale.y(greatest);
    const low = scale.y(least);
    if (high === high && low === low) {
      const y = Math.round(Math.max(-1e5, high) - thickness / 2);
      context.fillRect(left + column, y, 1, Math.max(thickness, Math.round(Math.min(1e5, low) + thickness / 2) - y));
    }
    lastColumn = column;
  };
  for (let at = from; at < to; at += 1) {
    const time = times[at] ?? 0;
    const value = values[at] ?? NaN;
    if (!(value === value)) {
      if (!plot.joinGaps) {
        lastValue = NaN;
      }
      continue;
    }
    const here = Math.floor((time - start) * factor);
    if (here !== column) {
      endColumn();
      before = time - lastTime > gap ? NaN : lastValue;
      column = here;
      least = value;
      greatest = value;
    } else {
      least = value < least ? value : least;
      greatest = value > greatest ? value : greatest;
    }
    lastValue = value;
    lastTime = time;
  }
  endColumn();
}

/**
 * @param {Plot} plot
 * @param {Series} series
 * @param {ValueScale} scale
 * @param {number} from
 * @param {number} to
 */
function fillArea(plot, series, scale, from, to) {
  const { context, start, left } = plot;
  const factor = (plot.right - left) / (plot.end - start);
  const gap = plot.joinGaps ? Infinity : series.gap;
  const zero = scale.log ? plot.bottom : Math.max(plot.top, Math.min(plot.bottom, scale.y(0)));
  // Of many points in a column, the greatest is enough for the fill.
  const stride = Math.max(1, Math.floor((to - from) / (4 * (plot.right - left))));
  context.globalAlpha = 0.18;
  context.beginPath();
  let open = false;
  let lastX = 0;
  let lastTime = -Infinity;
  const close = () => {
    if (open) {
      context.lineTo(lastX, zero);
      context.closePath();
    }
    open = false;
  };
  for (let at = from; at < to; at += stride) {
    const time = series.times[at] ?? 0;
    const y = scale.y(series.values[at] ?? NaN);
    if (!(y === y)) {
      if (!plot.joinGaps) {
        close();
      }
      continue;
    }
    if (time - lastTime > gap * stride) {
      close();
    }
    lastX = left + (time - start) * factor;
    lastTime = time;
    if (!open) {
      context.moveTo(lastX, zero);
      open = true;
    }
    context.lineTo(lastX, Math.max(-1e5, Math.min(1e5, y)));
  }
  close();
  context.fill();
  context.globalAlpha = 1;
}

/**
 * @param {Plot} plot
 * @param {import("./result.js").Annotation[]} annotations
 * @param {string} color
 */
export function drawAnnotations(plot, annotations, color) {
  const { context, left, right, top, bottom, start, end, ratio } = plot;
  const x = (/** @type {number} */ ms) => left + ((ms - start) / (end - start)) * (right - left);
  context.fillStyle = color;
  context.strokeStyle = color;
  for (const annotation of annotations) {
    if (annotation.startMs > end || Math.max(annotation.startMs, annotation.endMs) < start) {
      continue;
    }
    const from = x(annotation.startMs);
    if (annotation.endMs > annotation.startMs) {
      const to = Math.min(right, x(annotation.endMs));
      context.globalAlpha = 0.12;
      context.fillRect(Math.max(left, from), top, to - Math.max(left, from), bottom - top);
      context.globalAlpha = 1;
    }
    if (from < left) {
      continue;
    }
    context.setLineDash([4 * ratio, 3 * ratio]);
    context.lineWidth = ratio;
    context.beginPath();
    context.moveTo(from, top);
    context.lineTo(from, bottom);
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(from - 5 * ratio, top - 9 * ratio);
    context.lineTo(from + 5 * ratio, top - 9 * ratio);
    context.lineTo(from, top - ratio);
    context.fill();
  }
}
