//! Reports the new rows of a memtable to the backend.

use std::sync::Arc;

use tsd_series_index::SeriesIndex;
use tsd_storage::{FlushTarget, Table};

/// What the backend needs to know about new rows of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewRows {
    /// Series index to which the rows are added.
    index: Option<Arc<SeriesIndex>>,
    /// Offset of the base time in row keys, if the oldest base time is needed.
    base_time_at: Option<usize>,
}

impl NewRows {
    pub(crate) fn of<B: FlushTarget>(backend: &B, table: &Table) -> Self {
        Self {
            index: backend.series().series_index(table),
            base_time_at: backend.base_time_at(table),
        }
    }

    /// True if the backend needs nothing.
    pub(crate) const fn is_ignored(&self) -> bool {
        self.index.is_none() && self.base_time_at.is_none()
    }

    /// Notes rows by their keys. Returns the lowest of their base times in epoch seconds, or `u32::MAX`.
    pub(crate) fn note<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> u32 {
        let mut oldest = u32::MAX;
        let keys = keys.inspect(|key| {
            if let Some(at) = self.base_time_at {
                oldest = oldest.min(base_time(key, at));
            }
        });
        match &self.index {
            Some(index) => index.add_rows(keys),
            None => keys.for_each(drop),
        }
        oldest
    }
}

/// The base time of a key; 0 if it is too short.
fn base_time(key: &[u8], at: usize) -> u32 {
    let base = key.get(at..).and_then(<[u8]>::first_chunk::<4>);
    base.map_or(0, |base| u32::from_be_bytes(*base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_base_time_of_new_rows_is_known() {
        let keys: [&[u8]; 2] = [b"\0\0\x01\0\0\x0E\x10\x07", b"\0\0\x01\0\0\x1C\x20\x07"];
        let rows = NewRows { index: None, base_time_at: Some(3) };
        assert_eq!(rows.note(keys.into_iter()), 3_600);
        assert_eq!(rows.note(std::iter::empty()), u32::MAX);
        // A key without a base time may belong to any time.
        assert_eq!(rows.note([&b"key"[..]].into_iter()), 0);
        assert_eq!(NewRows::default().note(keys.into_iter()), u32::MAX);
    }
}
