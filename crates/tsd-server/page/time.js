/**
 * @file Times: expressions of queries (`1h-ago`, `2026/01/31-12:00`), calendar fields in a time zone, and their text. The rules of
 * expressions are those of the daemon, so that the chart spans what is asked for.
 */

/** @type {Record<string, number>} */
const UNIT_MS = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5, n: 2592e6, y: 31536e6 };

/** @typedef {{ year: number, month: number, day: number, hour: number, minute: number, second: number }} Fields */

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @type {Map<string, number>} */
const offsets = new Map();

/** How many offsets are kept; more than any chart needs. */
const MOST_OFFSETS = 10_000;

/** @returns {string} the zone of the browser */
export function localZone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}

/**
 * @param {string} zone
 * @returns {boolean}
 */
export function isZone(zone) {
  try {
    return Boolean(new Intl.DateTimeFormat("en-US", { timeZone: zone }));
  } catch {
    return false;
  }
}

/**
 * Milliseconds that the clocks of a zone are ahead of UTC.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {number}
 */
function offset(ms, zone) {
  if (zone === "UTC") {
    return 0;
  }
  // Offsets change at quarters of an hour only.
  const quarter = Math.floor(ms / 9e5);
  const key = `${zone} ${quarter}`;
  const known = offsets.get(key);
  if (known !== undefined) {
    return known;
  }
  let format = formats.get(zone);
  if (!format) {
    format = new Intl.DateTimeFormat("en-US", {
      timeZone: isZone(zone) ? zone : "UTC",
      hourCycle: "h23",
      era: "short",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
    formats.set(zone, format);
  }
  const at = quarter * 9e5;
  /** @type {Record<string, number>} */
  const part = {};
  for (const { type, value } of format.formatToParts(new Date(at))) {
    part[type] = Number(value);
  }
  const wall = Date.UTC(part.year ?? 0, (part.month ?? 1) - 1, part.day ?? 1, part.hour ?? 0, part.minute ?? 0, part.second ?? 0);
  if (offsets.size >= MOST_OFFSETS) {
    offsets.clear();
  }
  offsets.set(key, wall - at);
  return wall - at;
}

/**
 * @param {number} ms
 * @param {string} zone
 * @returns {Fields}
 */
export function fieldsOf(ms, zone) {
  const wall = new Date(ms + offset(ms, zone));
  return {
    year: wall.getUTCFullYear(),
    month: wall.getUTCMonth() + 1,
    day: wall.getUTCDate(),
    hour: wall.getUTCHours(),
    minute: wall.getUTCMinutes(),
    second: wall.getUTCSeconds(),
  };
}

/**
 * The time at which the clocks of a zone show these fields, which may overflow (month 13 is the next January).
 *
 * @param {Fields} fields
 * @param {string} zone
 * @returns {number}
 */
export function timeOf(fields, zone) {
  const wall = Date.UTC(fields.year, fields.month - 1, fields.day, fields.hour, fields.minute, fields.second);
  const guess = wall - offset(wall, zone);
  return wall - offset(guess, zone);
}

/**
 * @param {number} n
 * @param {number} [width]
 * @returns {string}
 */
function digits(n, width = 2) {
  return String(n).padStart(width, "0");
}

/**
 * A time with date, for tables and tips. Milliseconds are shown if there are any.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {string}
 */
export function timeText(ms, zone) {
  if (!Number.isFinite(ms) || Math.abs(ms) > 8.64e15) {
    return "–";
  }
  const f = fieldsOf(ms, zone);
  const part = ((ms % 1000) + 1000) % 1000;
  const clock = `${digits(f.hour)}:${digits(f.minute)}:${digits(f.second)}`;
  return `${f.year}-${digits(f.month)}-${digits(f.day)} ${clock}${part ? `.${digits(part, 3)}` : ""}`;
}

/**
 * A time as an expression that the daemon reads in the same zone.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {string}
 */
export function timeExpression(ms, zone) {
  if (ms % 1000 !== 0) {
    return `${ms}ms`;
  }
  const f = fieldsOf(ms, zone);
  // Where clocks are set back, an hour exists twice.
  if (f.year < 1000 || f.year > 9999 || timeOf(f, zone) !== ms) {
    return `${ms}ms`;
  }
  const clock = `${digits(f.hour)}:${digits(f.minute)}:${digits(f.second)}`;
  return `${f.year}/${digits(f.month)}/${digits(f.day)}-${clock}`;
}

/**
 * Milliseconds of a duration such as `10m`; null if it is none.
 *
 * @param {string} text
 * @returns {number | null}
 */
export function durationMs(text) {
  const match = /^(\d+)(ms|[smhdwny])c?$/i.exec(text);
  const unit = match && UNIT_MS[(match[2] ?? "").toLowerCase()];
  const value = match && unit ? Number(match[1]) * unit : 0;
  return value > 0 ? value : null;
}

/**
 * True if a time depends on the present.
 *
 * @param {string} text
 * @returns {boolean}
 */
export function isRelative(text) {
  return /-ago$/i.test(text) || text === "" || text.toLowerCase() === "now";
}

/**
 * The time that an expression means; null if it means none.
 *
 * @param {string} text
 * @param {string} zone
 * @param {number} now
 * @returns {number | null}
 */
export function parseTime(text, zone, now) {
  if (text.toLowerCase() === "now") {
    return now;
  }
  const ago = /^(.*)-ago$/i.exec(text);
  if (ago) {
    const length = durationMs(ago[1] ?? "");
    return length === null ? null : now - length;
  }
  if (/^\d+ms$/.test(text)) {
    return Number(text.slice(0, -2));
  }
  const calendar = /^(\d{4})\/(\d{2})\/(\d{2})(?:[- ](\d{2}):(\d{2})(?::(\d{2}))?)?$/.exec(text);
  if (calendar) {
    const [year, month, day, hour, minute, second] = calendar.slice(1).map((part) => Number(part ?? 0));
    return timeOf(
      { year: year ?? 0, month: month ?? 1, day: day ?? 1, hour: hour ?? 0, minute: minute ?? 0, second: second ?? 0 },
      zone,
    );
  }
  if (/^\d{10}\.\d{1,3}$/.test(text)) {
    return Number(text.replace(".", ""));
  }
  if (/^\d{1,19}$/.test(text)) {
    return text.length <= 10 ? Number(text) * 1000 : Number(text);
  }
  return null;
}

/** Time zones to offer: the browser's list, with UTC. */
export function zoneNames() {
  const listed = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
  return ["UTC", ...listed.filter((zone) => zone !== "UTC")];
}
