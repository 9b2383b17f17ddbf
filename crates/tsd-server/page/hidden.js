/**
 * @file The hidden series of a view. A link has short ids of the hidden series, or of the shown series if these are fewer. Names
 * with tags would make links too long for chats and mails.
 */

/** @typedef {{ only: boolean, ids: string[] }} Hidden series with these ids are hidden, or with `only` all others */

/** Maximum ids of a view. The oldest ids are dropped first. */
const MOST_IDS = 2000;

/** @returns {Hidden} */
export function nothingHidden() {
  return { only: false, ids: [] };
}

/**
 * Returns the id of a series: a hash (FNV-1a) of its key. Two series of a view with the same id are hidden together.
 *
 * @param {string} key
 * @returns {string}
 */
export function seriesId(key) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(key)) {
    hash = Math.imul(hash ^ byte, 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, "0");
}

/**
 * Marks the series of a result.
 *
 * @param {{ key: string, hidden: boolean }[]} series
 * @param {Hidden} hidden
 */
export function markHidden(series, hidden) {
  const ids = new Set(hidden.ids);
  for (const one of series) {
    // Without ids, no series is hashed, since a result may have very many.
    one.hidden = ids.size ? ids.has(seriesId(one.key)) !== hidden.only : hidden.only;
  }
}

/**
 * Returns the hidden series after the user marked some. Series that are not in this result keep their state.
 *
 * @param {{ key: string, hidden: boolean }[]} series
 * @param {Hidden} before
 * @returns {Hidden}
 */
export function hiddenOf(series, before) {
  const ids = series.map(({ key }) => seriesId(key));
  const known = new Set(ids);
  const others = before.ids.filter((id) => !known.has(id));
  const of = (/** @type {boolean} */ hidden) => ids.filter((_, at) => series[at]?.hidden === hidden);
  const [hidden, shown] = [of(true), of(false)];
  const only = shown.length < hidden.length;
  const kept = only === before.only ? others : [];
  return { only, ids: [...kept, ...(only ? shown : hidden)].slice(-MOST_IDS) };
}
