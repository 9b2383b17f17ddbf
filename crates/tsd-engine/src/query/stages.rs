//! Where the time of a query went, and what it read: plain numbers.
//!
//! They follow OpenTSDB's list of query statistics, under names of their own; the edge gives them
//! OpenTSDB's. Times of things that run side by side are wall time of each, so they may add up to
//! more than the whole; [`QueryStages::cpu`] is what the processors spent.

use std::time::Duration;

/// Numbers of a whole query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryStages {
    /// Names to UIDs, over all sub queries (`stringToUidTime`).
    pub string_to_uid: Duration,
    /// From the request to the first byte of the answer (`processingPreWriteTime`).
    pub processing_pre_write: Duration,
    /// Writing the answer (`serializationTime`); the front end knows.
    pub serialization: Duration,
    /// From the request until the answer was written (`totalTime`).
    pub total: Duration,
    /// Time of the processors, on threads of queries.
    pub cpu: Duration,
    /// How long it waited before it was let in, and for its turns on the processors.
    pub waited: Duration,
    /// Most memory it held at once, in bytes.
    pub peak_memory_bytes: u64,
    /// One a sub query, in request order.
    pub sub_queries: Vec<SubQueryStages>,
}

/// Numbers of one sub query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubQueryStages {
    /// Its place in the request (`queryIndex`).
    pub index: usize,
    /// Names to UIDs (`stringToUidTime`).
    pub string_to_uid: Duration,
    /// Joining what the scans of the salt buckets found (`saltScannerMergeTime`).
    pub scanner_merge: Duration,
    /// From the first scan opened to the last one ended (`queryScanTime`).
    pub query_scan: Duration,
    /// Sorting series into groups (`groupByTime`).
    pub group_by: Duration,
    /// Aggregating the groups (`aggregationTime`).
    pub aggregation: Duration,
    /// UIDs of the answer to names (`uidToStringTime`).
    pub uid_to_string: Duration,
    /// Writing its series (`serializationTime`); the front end knows.
    pub serialization: Duration,
    /// From its first step to its last (`totalTime`).
    pub total: Duration,
    /// Points of its answer (`emittedDPs`).
    pub emitted_points: u64,
    /// Those of them that are not a number (`nanDPs`).
    pub nan_points: u64,
    /// One a scan, in the order of their key ranges (`scannerStats`).
    pub scanners: Vec<ScannerStages>,
}

/// Numbers of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannerStages {
    /// What it scanned (`scannerId`).
    pub id: String,
    /// Whether it came to its end (`successfulScan`).
    pub successful: bool,
    /// Rows read (`rowsFromStorage`).
    pub rows: u64,
    /// Cells read (`columnsFromStorage`); a packed run counts its points.
    pub cells: u64,
    /// Bytes of these cells (`bytesFromStorage`).
    pub bytes: u64,
    /// Rows before the filters that are not the store's (`rowsPreFilter`).
    pub rows_pre_filter: u64,
    /// Cells of them (`dpsPreFilter`).
    pub cells_pre_filter: u64,
    /// Rows that every filter accepts (`rowsPostFilter`).
    pub rows_post_filter: u64,
    /// Cells of them (`dpsPostFilter`).
    pub cells_post_filter: u64,
    /// Waiting for the store (`hbaseTime`).
    pub store: Duration,
    /// Rows to points (`compactionTime`).
    pub compaction: Duration,
    /// UIDs to names, for filters (`scannerUidToStringTime`).
    pub uid_to_string: Duration,
    /// Pairs of tags whose names were looked up (`uidPairsResolved`).
    pub uid_pairs_resolved: u64,
    /// From open to end (`scannerTime`).
    pub total: Duration,
}

impl SubQueryStages {
    /// Rows read by all scans.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.scanners.iter().map(|scanner| scanner.rows).sum()
    }

    /// Cells read by all scans; a packed run counts its points.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.scanners.iter().map(|scanner| scanner.cells).sum()
    }

    /// Bytes read by all scans.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.scanners.iter().map(|scanner| scanner.bytes).sum()
    }
}
