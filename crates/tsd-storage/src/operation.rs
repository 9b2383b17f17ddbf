//! The calls of a store, for decorators and metrics.

/// A call of [`Storage`](crate::Storage) or [`FlushTarget`](crate::FlushTarget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `get`.
    Get,
    /// `multi_get`.
    MultiGet,
    /// One batch of an open scan.
    ScanBatch,
    /// One batch of an open read of series.
    SeriesBatch,
    /// `put`.
    Put,
    /// `append`.
    Append,
    /// `increment`.
    Increment,
    /// `compare_and_set`.
    CompareAndSet,
    /// `compare_and_delete`.
    CompareAndDelete,
    /// `delete`.
    Delete,
    /// `rewrite_row`.
    RewriteRow,
    /// `table_exists`.
    TableExists,
    /// `flush`.
    Flush,
    /// `flush_rows`.
    FlushRows,
    /// `set_log_mark`.
    SetLogMark,
    /// `pin_files`.
    PinFiles,
}

impl Operation {
    /// All operations, in the order of their declaration.
    pub const ALL: [Self; 16] = [
        Self::Get,
        Self::MultiGet,
        Self::ScanBatch,
        Self::SeriesBatch,
        Self::Put,
        Self::Append,
        Self::Increment,
        Self::CompareAndSet,
        Self::CompareAndDelete,
        Self::Delete,
        Self::RewriteRow,
        Self::TableExists,
        Self::Flush,
        Self::FlushRows,
        Self::SetLogMark,
        Self::PinFiles,
    ];

    /// Value of the label `operation` of the metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::MultiGet => "multi_get",
            Self::ScanBatch => "scan_batch",
            Self::SeriesBatch => "series_batch",
            Self::Put => "put",
            Self::Append => "append",
            Self::Increment => "increment",
            Self::CompareAndSet => "compare_and_set",
            Self::CompareAndDelete => "compare_and_delete",
            Self::Delete => "delete",
            Self::RewriteRow => "rewrite_row",
            Self::TableExists => "table_exists",
            Self::Flush => "flush",
            Self::FlushRows => "flush_rows",
            Self::SetLogMark => "set_log_mark",
            Self::PinFiles => "pin_files",
        }
    }
}
