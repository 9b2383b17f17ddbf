//! Groups the scans of one read, so that a store can do common preparation once.

use std::{any::Any, sync::Arc};

use tokio::sync::OnceCell;

use crate::{KeyRange, StorageError};

/// Scans that begin at about the same time, with the same conditions, one for each range.
#[derive(Debug)]
pub struct ScanGroup {
    ranges: Vec<KeyRange>,
    prepared: OnceCell<Arc<dyn Any + Send + Sync>>,
}

impl ScanGroup {
    /// A group of scans of these disjoint ranges.
    #[must_use]
    pub fn new(mut ranges: Vec<KeyRange>) -> Self {
        ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        Self { ranges, prepared: OnceCell::new() }
    }

    /// The ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// Index of the range that contains all keys of `of`.
    #[must_use]
    pub fn index_of(&self, of: &KeyRange) -> Option<usize> {
        let at = self.ranges.partition_point(|range| range.start <= of.start).checked_sub(1)?;
        let range = self.ranges.get(at)?;
        let ends_before = !of.stop.is_empty() && of.stop <= range.stop;
        (range.stop.is_empty() || ends_before).then_some(at)
    }

    /// The value that the first scan prepares while the other scans wait. Only one store may use
    /// it.
    ///
    /// # Errors
    ///
    /// The error of `prepare`, which the next scan retries.
    pub async fn prepared<T: Send + Sync + 'static>(
        &self,
        prepare: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<Arc<T>, StorageError> {
        let prepare = async {
            let prepared: Arc<dyn Any + Send + Sync> = Arc::new(prepare.await?);
            Ok::<_, StorageError>(prepared)
        };
        let prepared = Arc::clone(self.prepared.get_or_try_init(|| prepare).await?);
        prepared.downcast().map_err(|_| {
            StorageError::Backend("another store has prepared the scans of a read".into())
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn range(start: &'static str, stop: &'static str) -> KeyRange {
        KeyRange { start: start.into(), stop: stop.into() }
    }

    #[test]
    fn a_range_is_found_by_each_of_its_parts() {
        let group = ScanGroup::new(vec![range("d", "f"), range("a", "c"), range("m", "")]);
        for (start, stop, at) in [
            ("a", "c", Some(0)),
            ("b", "bb", Some(0)),
            ("b", "d", None),
            ("c", "d", None),
            ("A", "b", None),
            ("e", "f", Some(1)),
            ("e", "", None),
            ("n", "o", Some(2)),
            ("n", "", Some(2)),
        ] {
            assert_eq!(group.index_of(&range(start, stop)), at, "{start} {stop}");
        }
    }

    #[tokio::test]
    async fn the_first_scan_prepares_for_all_and_a_failure_is_tried_again() {
        let group = ScanGroup::new(vec![range("a", "c")]);
        let failed = group.prepared(async { Err::<u8, _>(StorageError::DiskFull) }).await;
        assert!(failed.is_err());
        let both = tokio::join!(group.prepared(async { Ok(7) }), group.prepared(async { Ok(8) }));
        assert_eq!((*both.0.unwrap(), *both.1.unwrap()), (7, 7));
        assert!(group.prepared(async { Ok("of another type") }).await.is_err());
    }
}
