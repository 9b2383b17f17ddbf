/** @file Exports of a view: CSV and JSON. The chart itself renders PNG. */

import { pivot } from "./table.js";
import { labelOf } from "./result.js";
import { isoTime, timeText } from "./time.js";

/** @typedef {import("./result.js").Series} Series */
/** @typedef {import("./view.js").View} View */

/** Maximum characters of a metric in a file name, which with the range must stay below 255 bytes. */
const MOST_CHARACTERS = 60;

/**
 * Makes the name of a file with the data of a view: metric, range and zone, in characters that every file system accepts.
 *
 * @param {View} view
 * @param {import("./request.js").Range | string} range
 * @param {string} extension
 * @returns {string}
 */
export function fileName(view, range, extension) {
  const names = [
    ...view.subs.filter((sub) => !sub.off).map((sub) => sub.metric || sub.tsuids),
    ...view.expressions.map((expression) => expression.text),
  ].map(safe).filter(Boolean);
  const more = names.length > 1 ? `-and-${names.length - 1}-more` : "";
  const time = (/** @type {number} */ ms) => timeText(Math.floor(ms / 1000) * 1000, view.zone).replace(" ", "T").replaceAll(/[^0-9T]/g, "");
  const times = typeof range === "string" ? [] : [time(range.startMs), time(range.endMs), safe(view.zone)];
  return `${[(names[0] ?? "points") + more, ...times].join("_")}.${extension}`;
}

/**
 * @param {string} text
 * @returns {string}
 */
function safe(text) {
  const kept = text.replaceAll(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, MOST_CHARACTERS);
  // A leading dot would hide the file, a leading minus would look like an option.
  return kept.replaceAll(/^[.-]+|[.-]+$/g, "");
}

/**
 * Renders a text as a field of CSV. Names and tags are untrusted, and a spreadsheet reads a field that begins with `=`, `+`, `-`,
 * `@`, a tab or a return as a formula. So such a field gets a leading apostrophe.
 *
 * @param {string} text
 * @returns {string}
 */
export function csvText(text) {
  const harmless = /^[=+\-@\t\r\n|%]/.test(text.trimStart()) || /^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n;]/.test(harmless) || harmless !== harmless.trim() ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/**
 * Renders a number as a field of CSV; empty without a value.
 *
 * @param {number | undefined} value
 * @returns {string}
 */
function csvNumber(value) {
  return value === undefined || !Number.isFinite(value) ? "" : String(value);
}

/**
 * Renders series as a table: a row for each time, a column for each series.
 *
 * @param {Series[]} series
 * @param {string} zone
 * @returns {string}
 */
export function csvOf(series, zone) {
  const { times, rows } = pivot(series);
  const head = [csvText(`time (${zone})`), "timestamp_ms", ...series.map((one) => csvText(labelOf(one)))].join(",");
  const lines = times.map((time, at) => {
    const values = (rows[at] ?? []).map(csvNumber);
    return [isoTime(time, zone), String(time), ...values].join(",");
  });
  return `${[head, ...lines].join("\r\n")}\r\n`;
}

/**
 * Joins responses by kind to one JSON text, with every digit that the daemon sent.
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
