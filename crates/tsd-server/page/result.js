/** @file Converts responses of queries to series to draw. */

import { isComplete, letter } from "./view.js";

/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").SeriesStyle} SeriesStyle */
/** @typedef {import("./request.js").QueryRequest} QueryRequest */

/** @typedef {{ last: number, min: number, max: number, avg: number, points: number }} SeriesStats */

/**
 * @typedef {object} Series
 * @property {string} key stable across repeated results, so that hidden series stay hidden
 * @property {string} name metric, or the text of the expression
 * @property {[string, string][]} tags
 * @property {string[]} aggregated tag keys with several values
 * @property {string[]} tsuids
 * @property {Float64Array} times milliseconds
 * @property {Float64Array} values NaN without a value
 * @property {number} gap maximum distance between two connected points
 * @property {SeriesStats} stats
 * @property {1 | 2} axis
 * @property {SeriesStyle} style
 * @property {number} color
 * @property {boolean} hidden
 */

/**
 * @typedef {object} Annotation
 * @property {string} tsuid
 * @property {string} description
 * @property {string} notes
 * @property {number} startMs
 * @property {number} endMs 0 if it has no end
 * @property {number} startTime in the daemon's unit
 * @property {Record<string, string> | null} custom fields of other programs
 */

/** @typedef {Record<string, unknown>} Summary */

/**
 * @typedef {object} QueryResult
 * @property {Series[]} series
 * @property {Annotation[]} annotations
 * @property {Summary | null} summary
 */

/**
 * @typedef {object} RawSeries
 * @property {string} [metric]
 * @property {Record<string, string>} [tags]
 * @property {string[]} [aggregateTags]
 * @property {string[]} [tsuids]
 * @property {{ index?: number }} [query]
 * @property {RawAnnotation[]} [annotations]
 * @property {RawAnnotation[]} [globalAnnotations]
 * @property {[number, number | string | null][]} [dps]
 * @property {Summary} [statsSummary]
 */

/**
 * @typedef {object} RawAnnotation
 * @property {string} [tsuid]
 * @property {string} [description]
 * @property {string} [notes]
 * @property {number} [startTime]
 * @property {number} [endTime]
 * @property {Record<string, string> | null} [custom]
 */

/** Times up to this value are seconds. */
const MOST_SECONDS = 0xffffffff;

/**
 * Reads a response.
 *
 * @param {QueryRequest["kind"]} kind
 * @param {unknown} response
 * @param {View} view
 * @returns {QueryResult}
 */
export function readResponse(kind, response, view) {
  /** @type {QueryResult} */
  const result = { series: [], annotations: [], summary: null };
  if (kind === "exp") {
    readExp(response, view, result);
    return result;
  }
  const subs = view.subs.filter((sub) => isComplete(sub) && !sub.off);
  const functions = view.expressions.filter((expression) => expression.kind === "gexp" && expression.text);
  /** @type {Map<string, Annotation>} */
  const annotations = new Map();
  for (const raw of /** @type {RawSeries[]} */ (Array.isArray(response) ? response : [])) {
    if (raw.statsSummary) {
      result.summary = raw.statsSummary;
      continue;
    }
    const index = raw.query?.index ?? 0;
    const sub = kind === "query" ? subs[index] : functions[Math.min(index, functions.length - 1)];
    const dps = raw.dps ?? [];
    const times = new Float64Array(dps.length);
    const values = new Float64Array(dps.length);
    dps.forEach(([time, value], at) => {
      times[at] = time;
      values[at] = numberOf(value);
    });
    const tags = Object.entries(raw.tags ?? {});
    const where = `${kind}${kind === "query" ? letter(view.subs.indexOf(/** @type {import("./view.js").SubQuery} */ (sub))) : index}`;
    result.series.push(
      makeSeries({
        where,
        name: raw.metric ?? "",
        tags,
        aggregated: raw.aggregateTags ?? [],
        tsuids: raw.tsuids ?? [],
        times,
        values,
        axis: sub?.axis ?? 1,
        style: sub?.style ?? "line",
      }),
    );
    for (const annotation of [...(raw.annotations ?? []), ...(raw.globalAnnotations ?? [])]) {
      const read = readAnnotation(annotation);
      annotations.set(`${read.tsuid} ${read.startMs}`, read);
    }
  }
  result.annotations = [...annotations.values()].sort((a, b) => a.startMs - b.startMs);
  return result;
}

/**
 * @param {unknown} response
 * @param {View} view
 * @param {QueryResult} result
 */
function readExp(response, view, result) {
  /**
   * @typedef {{ index: number, metrics?: string[], commonTags?: Record<string, string>, aggregatedTags?: string[] }} Column
   * @typedef {{ dps?: (number | string | null)[][], meta?: Column[] }} Output
   */
  const outputs = /** @type {{ outputs?: Output[] }} */ (response).outputs ?? [];
  const expressions = view.expressions.filter((expression) => expression.kind === "exp" && expression.text);
  outputs.forEach((output, at) => {
    const rows = output.dps ?? [];
    const times = Float64Array.from(rows, (row) => Number(row[0]));
    for (const column of output.meta ?? []) {
      if (column.index === 0) {
        continue;
      }
      const values = Float64Array.from(rows, (row) => numberOf(row[column.index] ?? null));
      result.series.push(
        makeSeries({
          where: `exp${at}`,
          name: expressions[at]?.text ?? "",
          tags: Object.entries(column.commonTags ?? {}),
          aggregated: column.aggregatedTags ?? [],
          tsuids: [],
          times,
          values,
          axis: expressions[at]?.axis ?? 1,
          style: expressions[at]?.style ?? "line",
        }),
      );
    }
  });
}

/**
 * Reads a value. Infinities and NaN are texts in JSON.
 *
 * @param {number | string | null} value
 * @returns {number}
 */
function numberOf(value) {
  if (typeof value === "number") {
    return value;
  }
  return value === null ? NaN : Number(value);
}

/**
 * @param {RawAnnotation} raw
 * @returns {Annotation}
 */
export function readAnnotation(raw) {
  const ms = (/** @type {number} */ time) => (time > MOST_SECONDS ? time : time * 1000);
  const startTime = raw.startTime ?? 0;
  return {
    tsuid: raw.tsuid ?? "",
    description: raw.description ?? "",
    notes: raw.notes ?? "",
    startMs: ms(startTime),
    endMs: raw.endTime ? ms(raw.endTime) : 0,
    startTime,
    custom: raw.custom ?? null,
  };
}

/**
 * @param {object} from
 * @param {string} from.where
 * @param {string} from.name
 * @param {[string, string][]} from.tags
 * @param {string[]} from.aggregated
 * @param {string[]} from.tsuids
 * @param {Float64Array} from.times
 * @param {Float64Array} from.values
 * @param {1 | 2} from.axis
 * @param {SeriesStyle} from.style
 * @returns {Series}
 */
export function makeSeries({ where, name, tags, aggregated, tsuids, times, values, axis, style }) {
  tags.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return {
    key: JSON.stringify([where, name, tags]),
    name,
    tags,
    aggregated,
    tsuids,
    times,
    values,
    gap: gapOf(times),
    stats: statsOf(values),
    axis,
    style,
    color: 0,
    hidden: false,
  };
}

/** Maximum points to measure the usual distance of points. */
const GAP_SAMPLES = 512;

/** Minimum length of a gap, in usual distances. */
const GAP_FACTOR = 5;

/**
 * Returns the distance above which no line connects two points. A few points are not enough to estimate it.
 *
 * @param {Float64Array} times
 * @returns {number}
 */
function gapOf(times) {
  if (times.length < 6) {
    return Infinity;
  }
  const stride = Math.max(1, Math.floor(times.length / GAP_SAMPLES));
  /** @type {number[]} */
  const distances = [];
  for (let at = stride; at < times.length; at += stride) {
    distances.push((times[at] ?? 0) - (times[at - 1] ?? 0));
  }
  distances.sort((a, b) => a - b);
  return (distances[distances.length >> 1] ?? Infinity) * GAP_FACTOR;
}

/**
 * @param {Float64Array} values
 * @returns {SeriesStats}
 */
function statsOf(values) {
  let [last, min, max, sum, points] = [NaN, Infinity, -Infinity, 0, 0];
  for (const value of values) {
    if (value === value) {
      last = value;
      min = value < min ? value : min;
      max = value > max ? value : max;
      sum += value;
      points += 1;
    }
  }
  return points ? { last, min, max, avg: sum / points, points } : { last: NaN, min: NaN, max: NaN, avg: NaN, points };
}

/**
 * Renders name and tags of a series as one text.
 *
 * @param {Series} series
 * @returns {string}
 */
export function labelOf(series) {
  const tags = series.tags.map(([key, value]) => `${key}=${value}`).join(", ");
  return tags ? `${series.name} {${tags}}` : series.name;
}
