/**
 * @file Times: expressions of queries (`1h-ago`, `2026/01/31-12:00`), calendar fields in a time zone, and their text. Expressions
 * follow the rules of the daemon, so that the chart shows the requested range.
 */

/** @type {Record<string, number>} */
const UNIT_MS = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5, n: 2592e6, y: 31536e6 };

/** @typedef {{ year: number, month: number, day: number, hour: number, minute: number, second: number }} Fields */

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @type {Map<string, number>} */
const offsets = new Map();

/** Maximum cached offsets, more than any chart needs. */
const MOST_OFFSETS = 10_000;

/** @returns {string} the zone of the browser */
export function localZone() {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  // If the browser does not know the zone of the system, it returns a name that cannot format times.
  return own && isZone(own) ? own : "UTC";
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
 * Returns how far the clocks of a zone are ahead of UTC, in milliseconds.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {number}
 */
function offset(ms, zone) {
  if (zone === "UTC") {
    return 0;
  }
  // Offsets change only at quarters of an hour.
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
 * Returns the time at which the clocks of a zone show these fields, which may overflow (month 13 is the next January).
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
 * Renders a time with date, for tables and tips. Shows milliseconds unless they are zero.
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
 * Renders a time with date and zone, for places without a heading that names the zone.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {string}
 */
export function zonedTime(ms, zone) {
  return `${timeText(ms, zone)} ${zone}`;
}

/**
 * Renders a time in ISO 8601 with the offset from UTC, for files that other programs read.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {string}
 */
export function isoTime(ms, zone) {
  const ahead = offset(ms, zone);
  const minutes = Math.round(Math.abs(ahead) / 6e4);
  const sign = ahead < 0 ? "-" : "+";
  const wall = new Date(ms + ahead).toISOString().slice(0, -1);
  return `${wall}${sign}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`;
}

/**
 * Renders a time for a field; `parseTime` reads it in the same zone.
 *
 * @param {number} ms
 * @param {string} zone
 * @returns {string}
 */
export function timeExpression(ms, zone) {
  const f = fieldsOf(ms, zone);
  const part = ((ms % 1000) + 1000) % 1000;
  // When clocks are set back, an hour exists twice.
  if (f.year < 1000 || f.year > 9999 || timeOf(f, zone) !== ms - part) {
    return instantText(ms);
  }
  const clock = `${digits(f.hour)}:${digits(f.minute)}:${digits(f.second)}`;
  return `${f.year}/${digits(f.month)}/${digits(f.day)}-${clock}${part ? `.${digits(part, 3)}` : ""}`;
}

/**
 * Renders an instant for links and requests, independent of the zone. Up to ten digits would be read as seconds.
 *
 * @param {number} ms
 * @returns {string}
 */
export function instantText(ms) {
  return ms >= 1e10 ? String(ms) : `${ms}ms`;
}

/**
 * Converts an entered time, or the time of a link, to the form of a view: relative times stay as they are, others become instants.
 * An invalid text stays and is rejected when the query is sent.
 *
 * @param {string} text
 * @param {string} zone
 * @returns {string}
 */
export function settledTime(text, zone) {
  const ms = isRelative(text) ? null : parseTime(text, zone, 0);
  return ms === null ? text : instantText(ms);
}

/**
 * Renders the time of a view for its field.
 *
 * @param {string} text
 * @param {string} zone
 * @returns {string}
 */
export function shownTime(text, zone) {
  const ms = isRelative(text) ? null : parseTime(text, zone, 0);
  return ms === null ? text : timeExpression(ms, zone);
}

/**
 * Parses a duration such as `10m` to milliseconds; null if it is invalid.
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
 * Returns true if a time is relative to the current time.
 *
 * @param {string} text
 * @returns {boolean}
 */
export function isRelative(text) {
  return /-ago$/i.test(text) || text === "" || text.toLowerCase() === "now";
}

/**
 * Evaluates a time expression; null if it is invalid.
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
  const calendar = /^(\d{4})\/(\d{2})\/(\d{2})(?:[- ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{3}))?)?)?$/.exec(text);
  if (calendar) {
    const [year, month, day, hour, minute, second, part] = calendar.slice(1).map((found) => Number(found ?? 0));
    const full = timeOf(
      { year: year ?? 0, month: month ?? 1, day: day ?? 1, hour: hour ?? 0, minute: minute ?? 0, second: second ?? 0 },
      zone,
    );
    return full + (part ?? 0);
  }
  if (/^\d{10}\.\d{1,3}$/.test(text)) {
    return Number(text.replace(".", ""));
  }
  if (/^\d{1,19}$/.test(text)) {
    return text.length <= 10 ? Number(text) * 1000 : Number(text);
  }
  return null;
}

/** Current names of zones that browsers list under former names, such as `Asia/Calcutta`. */
const RENAMED = [
  "Africa/Asmara", "America/Argentina/Buenos_Aires", "America/Argentina/Catamarca", "America/Argentina/Cordoba",
  "America/Argentina/Jujuy", "America/Argentina/Mendoza", "America/Atikokan", "America/Indiana/Indianapolis",
  "America/Kentucky/Louisville", "America/Nuuk", "Asia/Ho_Chi_Minh", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Yangon",
  "Atlantic/Faroe", "Europe/Kyiv", "Pacific/Chuuk", "Pacific/Kanton", "Pacific/Pohnpei",
];

/** Zones with a fixed offset from UTC. Their names have the sign of POSIX. */
const FIXED = Array.from({ length: 27 }, (_, at) => at - 14).filter(Boolean).map((hours) => `Etc/GMT${hours > 0 ? "+" : ""}${hours}`);

/**
 * Returns the selectable time zones: the browser's own, UTC, and all others by name.
 *
 * @returns {[string, string][]} pairs of value and label; the value of the browser's own zone is empty
 */
export function zoneChoices() {
  const own = localZone();
  const listed = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
  const named = [...new Set([...listed, ...RENAMED.filter(isZone)])].filter((zone) => zone !== "UTC" && !zone.startsWith("Etc/")).sort();
  const others = ["UTC", ...named, ...FIXED].filter((zone) => zone !== own);
  return [["", `${own} (browser)`], ...others.map((zone) => /** @type {[string, string]} */ ([zone, zone]))];
}
