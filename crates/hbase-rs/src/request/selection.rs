//! Selection of cells by columns, versions, time and filter; the same for gets and scans.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::{RequestError, filter::Filter};

/// Range of timestamps in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    from: u64,
    to: u64,
}

impl TimeRange {
    /// Range from `from`, inclusive, to `to`, exclusive.
    ///
    /// # Errors
    ///
    /// When `to` is less than `from`.
    pub const fn try_new(from: u64, to: u64) -> Result<Self, RequestError> {
        if from > to { Err(RequestError::TimeRange { from, to }) } else { Ok(Self { from, to }) }
    }

    pub(crate) const fn to_message(self) -> pb::TimeRange {
        pb::TimeRange { from: Some(self.from), to: Some(self.to) }
    }
}

/// Cells of a row to read; by default the newest of every column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    pub(crate) columns: Vec<pb::Column>,
    pub(crate) filter: Option<Filter>,
    pub(crate) time_range: Option<TimeRange>,
    pub(crate) max_versions: Option<u32>,
    pub(crate) store_limit: Option<u32>,
    pub(crate) store_offset: Option<u32>,
    pub(crate) attributes: Vec<pb::NameBytesPair>,
    pub(crate) no_block_cache: bool,
}

impl Selection {
    /// The newest cell of every column.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Adds all columns of a family.
    #[must_use]
    pub fn family(mut self, family: impl Into<Bytes>) -> Self {
        self.columns.push(pb::Column { family: family.into(), qualifier: Vec::new() });
        self
    }

    /// Adds columns of a family.
    #[must_use]
    pub fn columns(
        mut self,
        family: impl Into<Bytes>,
        qualifiers: impl IntoIterator<Item = Bytes>,
    ) -> Self {
        let qualifier = qualifiers.into_iter().collect();
        self.columns.push(pb::Column { family: family.into(), qualifier });
        self
    }

    /// Selects only what passes the filter.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Selects only cells of this time range.
    #[must_use]
    pub const fn time_range(mut self, range: TimeRange) -> Self {
        self.time_range = Some(range);
        self
    }

    /// Sets the maximum number of versions per column.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn max_versions(mut self, versions: u32) -> Result<Self, RequestError> {
        if versions == 0 {
            return Err(RequestError::NoVersion);
        }
        self.max_versions = Some(versions);
        Ok(self)
    }

    /// Selects at most `limit` cells per family after the first `offset`.
    #[must_use]
    pub const fn page_of_family(mut self, offset: u32, limit: u32) -> Self {
        self.store_offset = Some(offset);
        self.store_limit = Some(limit);
        self
    }

    /// Bypasses the server's block cache: for long reads that are not repeated.
    #[must_use]
    pub const fn without_block_cache(mut self) -> Self {
        self.no_block_cache = true;
        self
    }

    /// Adds an attribute for the server and its coprocessors.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.attributes.push(pb::NameBytesPair { name: name.into(), value: Some(value.into()) });
        self
    }
}
