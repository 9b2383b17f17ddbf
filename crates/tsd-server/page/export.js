/** @file What a view exports: CSV. PNG is the chart's own picture, JSON the responses as they came. */

import { pivot } from "./table.js";
import { labelOf } from "./result.js";

/** @typedef {import("./result.js").Series} Series */

/**
 * A text as a field of CSV. A spreadsheet reads a field that begins with `=`, `+`, `-`, `@`, a tab or a return as a formula, and names
 * and tags are text of other people: such a field gets an apostrophe in front.
 *
 * @param {string} text
 * @returns {string}
 */
export function csvText(text) {
  const harmless = /^[=+\-@\t\r\n|%]/.test(text.trimStart()) || /^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n;]/.test(harmless) || harmless !== harmless.trim() ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/**
 * A number as a field of CSV, which is none if there is no value.
 *
 * @param {number | undefined} value
 * @returns {string}
 */
function csvNumber(value) {
  return value === undefined || !Number.isFinite(value) ? "" : String(value);
}

/**
 * Series as a table: a row for each time, a column for each series.
 *
 * @param {Series[]} series
 * @returns {string}
 */
export function csvOf(series) {
  const { times, rows } = pivot(series);
  const head = ["time", "timestamp_ms", ...series.map((one) => csvText(labelOf(one)))].join(",");
  const lines = times.map((time, at) => {
    const values = (rows[at] ?? []).map(csvNumber);
    return [new Date(time).toISOString(), String(time), ...values].join(",");
  });
  return `${[head, ...lines].join("\r\n")}\r\n`;
}

/**
 * Responses by kind as one JSON text, with every digit of the daemon's.
 *
 * @param {Map<string, string>} responses
 * @returns {string}
 */
export function jsonOf(responses) {
  const [only] = responses.values();
  if (responses.size === 1 && only !== undefined) {
    return only;
  }
  return `{${[...responses].map(([kind, text]) => `${JSON.stringify(kind)}:${text}`).join(",")}}`;
}
