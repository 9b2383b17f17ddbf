//! What a query would read, told without reading it.

/// What one sub query reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedSubQuery {
    /// Its place in the request.
    pub index: usize,
    /// Whether the reads are parts of one answer (rollups, then raw data); else the first of them
    /// that finds any series is the answer.
    pub split: bool,
    /// The reads, in the order in which they are tried.
    pub reads: Vec<ExplainedRead>,
}

/// One read of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedRead {
    /// The table.
    pub table: String,
    /// What is read of its rows: `points`, `histograms`, `sum of 10m`.
    pub cells: String,
    /// First and last millisecond of the answer.
    pub range_ms: (i64, i64),
    /// Base times of the first row and of the row to stop before, epoch seconds.
    pub rows_secs: (i64, i64),
    /// Row keys, by salt bucket.
    pub ranges: Vec<ExplainedRange>,
    /// What the store checks by row key.
    pub pushed_down: Vec<String>,
    /// What is checked by name once rows are there.
    pub checked_afterwards: Vec<String>,
    /// Tag keys that group.
    pub group_by: Vec<String>,
    /// Whether rows are fetched by key instead of scanned.
    pub by_key: bool,
    /// About how many rows that are.
    pub estimated_rows: u64,
    /// What the estimate is made of.
    pub estimated_from: String,
    /// All of it as text.
    pub text: String,
}

/// Row keys from one up to another, in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedRange {
    /// The salt bucket; `None` where keys are not salted.
    pub bucket: Option<u32>,
    /// First row key.
    pub start: String,
    /// Row key to stop before.
    pub stop: String,
}
