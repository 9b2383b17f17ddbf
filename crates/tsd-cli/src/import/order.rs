//! Checks that the timestamps of each series increase strictly.
//!
//! OpenTSDB's importer rejects a line that is not later than the previous line of its series, whatever the order of
//! the tags. The check keeps one number per series.

use hashbrown::HashMap;

/// Last timestamp of every series.
#[derive(Debug, Default)]
pub(super) struct SeriesOrder {
    // From metric and tags as written to an index in `last_ms`.
    spellings: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
    // From metric and sorted tags to the same index.
    series: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
    last_ms: Vec<i64>,
    key: Vec<u8>,
}

/// A point that is not later than the previous point of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("new timestamp={timestamp} is less than or equal to previous={previous_ms}")]
pub(super) struct NotRising {
    /// The timestamp as given.
    pub(super) timestamp: i64,
    /// Timestamp of the previous point, milliseconds.
    pub(super) previous_ms: i64,
}

/// Index of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesIndex(u32);

impl SeriesOrder {
    /// Finds a series by spelling.
    pub(super) fn find(&mut self, metric: &[u8], tags_raw: &[u8]) -> Option<SeriesIndex> {
        spell(&mut self.key, metric, tags_raw);
        self.spellings.get(self.key.as_slice()).copied().map(SeriesIndex)
    }

    /// Adds a spelling. `tags` are the parsed `tags_raw`.
    pub(super) fn add(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        tags: &[(&[u8], &[u8])],
    ) -> SeriesIndex {
        let mut sorted = tags.to_vec();
        sorted.sort_unstable();
        self.key.clear();
        self.key.extend_from_slice(metric);
        for (k, v) in sorted {
            self.key.push(b' ');
            self.key.extend_from_slice(k);
            self.key.push(b'=');
            self.key.extend_from_slice(v);
        }
        let next = self.last_ms.len() as u32;
        let index = *self.series.entry_ref(self.key.as_slice()).or_insert(next);
        if index == next {
            self.last_ms.push(i64::MIN);
        }
        spell(&mut self.key, metric, tags_raw);
        self.spellings.insert(self.key.clone(), index);
        SeriesIndex(index)
    }

    /// Accepts a point if it is later than the last point; returns the timestamp of the last point.
    pub(super) fn advance(
        &mut self,
        SeriesIndex(index): SeriesIndex,
        timestamp: i64,
        time_ms: i64,
    ) -> Result<i64, NotRising> {
        let Some(last_ms) = self.last_ms.get_mut(index as usize) else { return Ok(i64::MIN) };
        if time_ms <= *last_ms {
            return Err(NotRising { timestamp, previous_ms: *last_ms });
        }
        Ok(std::mem::replace(last_ms, time_ms))
    }

    /// Undoes an [`Self::advance`] that returned `previous_ms`, after the point was rejected.
    pub(super) fn retreat(&mut self, SeriesIndex(index): SeriesIndex, previous_ms: i64) {
        if let Some(last_ms) = self.last_ms.get_mut(index as usize) {
            *last_ms = previous_ms;
        }
    }
}

fn spell(key: &mut Vec<u8>, metric: &[u8], tags_raw: &[u8]) {
    key.clear();
    key.extend_from_slice(metric);
    key.push(b' ');
    key.extend_from_slice(tags_raw);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn tag_order_does_not_distinguish_series() {
        let mut order = SeriesOrder::default();
        assert!(order.find(b"m", b"a=1 b=2").is_none());
        let index = order.add(b"m", b"a=1 b=2", &[(b"a", b"1"), (b"b", b"2")]);
        order.advance(index, 10, 10_000).unwrap();
        let other = order.add(b"m", b"b=2 a=1", &[(b"b", b"2"), (b"a", b"1")]);
        assert_eq!(
            order.advance(other, 10, 10_000),
            Err(NotRising { timestamp: 10, previous_ms: 10_000 })
        );
        let index = order.find(b"m", b"a=1 b=2").unwrap();
        order.advance(index, 10_001, 10_001).unwrap();
    }

    #[test]
    fn series_are_independent() {
        let mut order = SeriesOrder::default();
        let a = order.add(b"m", b"h=a", &[(b"h", b"a")]);
        let b = order.add(b"m", b"h=b", &[(b"h", b"b")]);
        order.advance(a, 20, 20_000).unwrap();
        order.advance(b, 10, 10_000).unwrap();
    }
}
