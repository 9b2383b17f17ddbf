/** @file Numbers, sizes and durations as text. */

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

/**
 * Renders a value in few characters, such as `12.3k`.
 *
 * @param {number} value
 * @param {number} [digits]
 * @returns {string}
 */
export function short(value, digits = 4) {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "–" : value > 0 ? "∞" : "-∞";
  }
  const size = Math.abs(value);
  if (size >= 1e21 || (size > 0 && size < 1e-4)) {
    return value.toExponential(2);
  }
  if (size < 1000) {
    return trim(value, digits);
  }
  let step = Math.min(Math.floor(Math.log10(size) / 3), PREFIXES.length - 1);
  // 999 999 becomes 1M.
  if (step + 1 < PREFIXES.length && Number((value / 1000 ** step).toPrecision(digits)) >= 1000) {
    step += 1;
  }
  return trim(value / 1000 ** step, digits) + (PREFIXES[step] ?? "");
}

/**
 * @param {number} value
 * @param {number} digits
 * @returns {string}
 */
function trim(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

/**
 * Renders a tick of an axis whose ticks are `step` apart.
 *
 * @param {number} value
 * @param {number} step
 * @returns {string}
 */
export function tick(value, step) {
  if (Math.abs(value) < step * 1e-6) {
    return "0";
  }
  const size = Math.abs(value);
  if (size >= 1e21 || size < 1e-6) {
    return value.toExponential(1);
  }
  if (size < 1000) {
    return String(Number(value.toFixed(Math.min(20, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + 1)))));
  }
  const power = Math.min(Math.floor(Math.log10(size) / 3), PREFIXES.length - 1);
  const unit = 1000 ** power;
  const decimals = Math.min(20, Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9) + 1));
  return String(Number((value / unit).toFixed(decimals))) + (PREFIXES[power] ?? "");
}

/**
 * Renders all digits of a value.
 *
 * @param {number} value
 * @returns {string}
 */
export function exact(value) {
  return Number.isNaN(value) ? "NaN" : String(value);
}

/**
 * @param {number} bytes
 * @returns {string}
 */
export function bytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    unit += 1;
  }
  return `${trim(bytes, bytes < 10 ? 2 : 3)} ${units[unit] ?? ""}`;
}

/**
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  if (ms < 1) {
    return `${trim(ms, 2)} ms`;
  }
  if (ms < 1000) {
    return `${trim(ms, 3)} ms`;
  }
  const s = ms / 1000;
  if (s < 60) {
    return `${trim(s, 3)} s`;
  }
  const parts = [
    [Math.floor(s / 86400), "d"],
    [Math.floor((s % 86400) / 3600), "h"],
    [Math.floor((s % 3600) / 60), "min"],
    [Math.floor(s % 60), "s"],
  ];
  return parts.filter(([n]) => Number(n) > 0).slice(0, 2).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/**
 * @param {number} n
 * @returns {string}
 */
export function count(n) {
  return Number.isFinite(n) ? n.toLocaleString("en-US") : "–";
}

/**
 * @param {number} n
 * @param {string} noun
 * @returns {string}
 */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}
