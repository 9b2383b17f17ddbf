//! Times of a series rise strictly.
//!
//! The importer of OpenTSDB refuses a line that is not later than the one before it in its series,
//! however the series is spelt. The rule needs a number for every series of the import.

use hashbrown::HashMap;

/// The last time of every series met.
#[derive(Debug, Default)]
pub(super) struct SeriesOrder {
    // As spelt, to a place in `last_ms`.
    spellings: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
    // Metric and sorted tags, to the same.
    series: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
    last_ms: Vec<i64>,
    key: Vec<u8>,
}

/// A point that is not later than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("new timestamp={timestamp} is less than or equal to previous={previous_ms}")]
pub(super) struct NotRising {
    /// The time as given.
    pub(super) timestamp: i64,
    /// Time of the point before, in milliseconds.
    pub(super) previous_ms: i64,
}

/// Place of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl SeriesOrder {
    /// The series of that spelling, if it was met before.
    pub(super) fn find(&mut self, metric: &[u8], tags_raw: &[u8]) -> Option<Place> {
        spell(&mut self.key, metric, tags_raw);
        self.spellings.get(self.key.as_slice()).copied().map(Place)
    }

    /// Remembers a spelling. `tags` are those of `tags_raw`.
    pub(super) fn add(&mut self, metric: &[u8], tags_raw: &[u8], tags: &[(&[u8], &[u8])]) -> Place {
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
        let place = *self.series.entry_ref(self.key.as_slice()).or_insert(next);
        if place == next {
            self.last_ms.push(i64::MIN);
        }
        spell(&mut self.key, metric, tags_raw);
        self.spellings.insert(self.key.clone(), place);
        Place(place)
    }

    /// Takes a point of the series if it is later than the last; returns the time of that.
    pub(super) fn advance(
        &mut self,
        Place(place): Place,
        timestamp: i64,
        time_ms: i64,
    ) -> Result<i64, NotRising> {
        let Some(last_ms) = self.last_ms.get_mut(place as usize) else { return Ok(i64::MIN) };
        if time_ms <= *last_ms {
            return Err(NotRising { timestamp, previous_ms: *last_ms });
        }
        Ok(std::mem::replace(last_ms, time_ms))
    }

    /// Takes the last point back, which was refused after all: `previous_ms` is what
    /// [`Self::advance`] returned.
    pub(super) fn retreat(&mut self, Place(place): Place, previous_ms: i64) {
        if let Some(last_ms) = self.last_ms.get_mut(place as usize) {
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
    fn a_series_is_one_however_its_tags_are_ordered() {
        let mut order = SeriesOrder::default();
        assert!(order.find(b"m", b"a=1 b=2").is_none());
        let place = order.add(b"m", b"a=1 b=2", &[(b"a", b"1"), (b"b", b"2")]);
        order.advance(place, 10, 10_000).unwrap();
        let other = order.add(b"m", b"b=2 a=1", &[(b"b", b"2"), (b"a", b"1")]);
        assert_eq!(
            order.advance(other, 10, 10_000),
            Err(NotRising { timestamp: 10, previous_ms: 10_000 })
        );
        let place = order.find(b"m", b"a=1 b=2").unwrap();
        order.advance(place, 10_001, 10_001).unwrap();
    }

    #[test]
    fn series_do_not_disturb_each_other() {
        let mut order = SeriesOrder::default();
        let a = order.add(b"m", b"h=a", &[(b"h", b"a")]);
        let b = order.add(b"m", b"h=b", &[(b"h", b"b")]);
        order.advance(a, 20, 20_000).unwrap();
        order.advance(b, 10, 10_000).unwrap();
    }
}
