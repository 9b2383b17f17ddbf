//! Gets: reads of one row.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::{
    RequestError, checked_row,
    filter::Filter,
    selection::{Selection, TimeRange},
};

/// A read of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    row: Bytes,
    selection: Selection,
    existence_only: bool,
}

impl Get {
    /// Reads the newest cell of every column of `row`.
    ///
    /// # Errors
    ///
    /// When the row is empty or too long.
    pub fn try_new(row: impl Into<Bytes>) -> Result<Self, RequestError> {
        let row = checked_row(row)?;
        Ok(Self { row, selection: Selection::all(), existence_only: false })
    }

    /// Sets the cells to read.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Requests only whether the row has a selected cell.
    #[must_use]
    pub const fn existence_only(mut self) -> Self {
        self.existence_only = true;
        self
    }

    /// Returns the row key.
    #[must_use]
    pub const fn row(&self) -> &Bytes {
        &self.row
    }

    pub(crate) fn to_message(&self) -> pb::Get {
        let selection = self.selection.clone();
        pb::Get {
            row: self.row.clone(),
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter.map(Filter::into_message),
            time_range: selection.time_range.map(TimeRange::to_message),
            max_versions: selection.max_versions,
            cache_blocks: selection.no_block_cache.then_some(false),
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            existence_only: self.existence_only.then_some(true),
            ..pb::Get::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_are_validated() {
        assert_eq!(Get::try_new(""), Err(RequestError::EmptyRow));
        assert!(Get::try_new(vec![1; 32_767]).is_ok());
        assert!(Get::try_new(vec![1; 32_768]).is_err());
    }

    #[test]
    fn only_set_fields_are_sent() {
        let plain = Get::try_new("r").unwrap();
        assert_eq!(plain.to_message(), pb::Get { row: "r".into(), ..pb::Get::default() });
        let selection = Selection::all()
            .family("t")
            .time_range(TimeRange::try_new(1, 2).unwrap())
            .max_versions(3)
            .unwrap()
            .page_of_family(4, 5)
            .without_block_cache();
        let message = plain.select(selection).existence_only().to_message();
        let expected = pb::Get {
            row: "r".into(),
            column: vec![pb::Column { family: "t".into(), qualifier: Vec::new() }],
            time_range: Some(pb::TimeRange { from: Some(1), to: Some(2) }),
            max_versions: Some(3),
            cache_blocks: Some(false),
            store_offset: Some(4),
            store_limit: Some(5),
            existence_only: Some(true),
            ..pb::Get::default()
        };
        assert_eq!(message, expected);
    }

    #[test]
    fn invalid_ranges_and_versions_are_rejected() {
        assert!(TimeRange::try_new(2, 1).is_err());
        assert_eq!(Selection::all().max_versions(0), Err(RequestError::NoVersion));
    }
}
