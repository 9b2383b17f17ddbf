/** @file Axes: ticks of values and times, and the position of a value. */

import { fieldsOf, timeOf } from "./time.js";

/** @typedef {{ at: number, label: string, strong: boolean }} Tick */

/**
 * Returns the ticks of a linear axis.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} most
 * @returns {{ ticks: number[], step: number }}
 */
export function linearTicks(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0) || !Number.isFinite(raw)) {
    return { ticks: [low], step: 1 };
  }
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw * 0.9999) ?? 10) * power;
  /** @type {number[]} */
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let n = first; n * step <= high + step * 1e-9 && ticks.length < 100; n += 1) {
    ticks.push(n * step);
  }
  return { ticks, step };
}

/**
 * Returns the ticks of a logarithmic axis: powers of ten, with 2 and 5 between them if there is room.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} most
 * @returns {number[]}
 */
export function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const decades = Math.max(1, last - first);
  const factors = decades * 3 <= most ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(decades / Math.max(1, most)));
  /** @type {number[]} */
  const ticks = [];
  for (let power = first; power <= last; power += stride) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.9999 && value <= high * 1.0001) {
        ticks.push(value);
      }
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, most).ticks.filter((value) => value > 0);
}

/** Steps of time axes shorter than a day, in milliseconds. Each divides a day. */
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5,
];

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/**
 * Returns the ticks of a time axis, at full calendar units of a zone.
 *
 * @param {number} start
 * @param {number} end
 * @param {number} most
 * @param {string} zone
 * @returns {Tick[]}
 */
export function timeTicks(start, end, most, zone) {
  const raw = (end - start) / Math.max(1, most);
  const step = STEPS.find((candidate) => candidate >= raw);
  if (step !== undefined) {
    return clockTicks(start, end, step, zone);
  }
  const days = raw / 864e5;
  const dayStep = [1, 2, 7, 14].find((candidate) => candidate >= days);
  if (dayStep !== undefined) {
    return dayTicks(start, end, dayStep, zone);
  }
  const monthStep = [1, 2, 3, 6, 12, 24, 60, 120].find((candidate) => candidate * 30 >= days) ?? 120;
  return monthTicks(start, end, monthStep, zone);
}

/**
 * @param {number} start
 * @param {number} end
 * @param {number} step
 * @param {string} zone
 * @returns {Tick[]}
 */
function clockTicks(start, end, step, zone) {
  /** @type {Tick[]} */
  const ticks = [];
  const first = fieldsOf(start, zone);
  let day = 0;
  let at = timeOf({ ...first, hour: 0, minute: 0, second: 0 }, zone);
  while (at <= end && ticks.length < 500) {
    day += 1;
    const next = timeOf({ ...first, day: first.day + day, hour: 0, minute: 0, second: 0 }, zone);
    // Days of 23 or 25 hours have ticks from midnight on, up to the next midnight.
    let tick = start > at ? at + Math.floor((start - at) / step) * step : at;
    for (; tick < next && tick <= end && ticks.length < 500; tick += step) {
      if (tick >= start) {
        ticks.push(clockTick(tick, tick === at, step, zone));
      }
    }
    at = next;
  }
  return ticks;
}

/**
 * @param {number} ms
 * @param {boolean} midnight
 * @param {number} step
 * @param {string} zone
 * @returns {Tick}
 */
function clockTick(ms, midnight, step, zone) {
  const f = fieldsOf(ms, zone);
  if (midnight) {
    return { at: ms, label: `${MONTHS[f.month - 1] ?? ""} ${f.day}`, strong: true };
  }
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  let label = `${two(f.hour)}:${two(f.minute)}`;
  if (step < 6e4) {
    label += `:${two(f.second)}`;
  }
  if (step < 1e3) {
    label += `.${String(((ms % 1000) + 1000) % 1000).padStart(3, "0")}`;
  }
  return { at: ms, label, strong: false };
}

/**
 * @param {number} start
 * @param {number} end
 * @param {number} step
 * @param {string} zone
 * @returns {Tick[]}
 */
function dayTicks(start, end, step, zone) {
  /** @type {Tick[]} */
  const ticks = [];
  const first = fieldsOf(start, zone);
  for (let n = 0; n < 1000; n += step) {
    const at = timeOf({ ...first, day: first.day + n, hour: 0, minute: 0, second: 0 }, zone);
    if (at > end) {
      break;
    }
    if (at >= start) {
      const f = fieldsOf(at, zone);
      ticks.push({ at, label: `${MONTHS[f.month - 1] ?? ""} ${f.day}`, strong: f.day === 1 });
    }
  }
  return ticks;
}

/**
 * @param {number} start
 * @param {number} end
 * @param {number} step
 * @param {string} zone
 * @returns {Tick[]}
 */
function monthTicks(start, end, step, zone) {
  /** @type {Tick[]} */
  const ticks = [];
  const first = fieldsOf(start, zone);
  const aligned = Math.floor((first.year * 12 + first.month - 1) / step) * step;
  for (let n = aligned; ticks.length < 500; n += step) {
    const at = timeOf({ year: Math.floor(n / 12), month: (n % 12) + 1, day: 1, hour: 0, minute: 0, second: 0 }, zone);
    if (at > end) {
      break;
    }
    if (at >= start) {
      const january = n % 12 === 0;
      const year = String(Math.floor(n / 12));
      ticks.push({ at, label: january ? year : `${MONTHS[n % 12] ?? ""}`, strong: january });
    }
  }
  return ticks;
}

/**
 * Maps values to heights of the plot.
 *
 * @typedef {object} ValueScale
 * @property {number} low
 * @property {number} high
 * @property {boolean} log
 * @property {(value: number) => number} y height in pixels from the top; NaN if the scale cannot show the value
 * @property {(y: number) => number} value
 */

/**
 * @param {number} low
 * @param {number} high
 * @param {boolean} log
 * @param {number} top
 * @param {number} bottom
 * @returns {ValueScale}
 */
export function valueScale(low, high, log, top, bottom) {
  if (log) {
    const from = Math.log10(low);
    const factor = (bottom - top) / (Math.log10(high) - from);
    return {
      low,
      high,
      log,
      y: (value) => (value > 0 ? bottom - (Math.log10(value) - from) * factor : NaN),
      value: (y) => 10 ** (from + (bottom - y) / factor),
    };
  }
  const factor = (bottom - top) / (high - low);
  return {
    low,
    high,
    log,
    y: (value) => bottom - (value - low) * factor,
    value: (y) => low + (bottom - y) / factor,
  };
}

/**
 * Returns the range of an axis: the given bounds, or else the range of the values with a margin.
 *
 * @param {{ min: number | null, max: number | null, log: boolean }} axis
 * @param {number} low the least value; Infinity without values
 * @param {number} high
 * @param {boolean} fromZero areas are drawn from zero
 * @returns {[number, number]}
 */
export function axisRange(axis, low, high, fromZero) {
  if (!(low <= high)) {
    [low, high] = axis.log ? [1, 10] : [0, 1];
  }
  if (axis.log) {
    let from = axis.min !== null && axis.min > 0 ? axis.min : low;
    let to = axis.max !== null && axis.max > 0 ? axis.max : high;
    if (!(from > 0)) {
      from = Math.min(1, to > 0 ? to / 10 : 1);
    }
    if (!(to > from)) {
      to = from * 10;
    }
    return [axis.min !== null ? from : from * 0.9, axis.max !== null ? to : to * 1.1];
  }
  // If the values span more than half of their distance to zero, the axis begins at zero.
  if (fromZero || (low > 0 && high - low > high * 0.5)) {
    low = Math.min(low, 0);
  }
  if (fromZero) {
    high = Math.max(high, 0);
  }
  if (low === high) {
    const margin = Math.abs(low) * 0.1 || 1;
    [low, high] = low === 0 ? [0, 1] : [low - margin, high + margin];
  } else {
    const margin = (high - low) * 0.06;
    high += margin;
    if (low !== 0) {
      low -= margin;
    }
  }
  const from = axis.min ?? low;
  let to = axis.max ?? high;
  if (!(to > from)) {
    to = from + (Math.abs(from) * 0.1 || 1);
  }
  return [from, to];
}
