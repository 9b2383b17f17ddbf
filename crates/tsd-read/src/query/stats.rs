//! Statistics of queries: where time was spent, and how much was read.
//!
//! They follow OpenTSDB's list of query statistics, under names of their own; the HTTP layer maps the names. The time
//! of concurrent work is the wall time of each task, so the times may add up to more than the total.
//! [`QueryStats::cpu`] is CPU time.

use std::time::Duration;

/// Statistics of a whole query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Names to UIDs, over all sub queries (`stringToUidTime`).
    pub string_to_uid: Duration,
    /// From the request to the first byte of the response (`processingPreWriteTime`).
    pub processing_pre_write: Duration,
    /// Writing the response (`serializationTime`); set by the HTTP layer.
    pub serialization: Duration,
    /// From the request until the response was written (`totalTime`).
    pub total: Duration,
    /// CPU time on query threads.
    pub cpu: Duration,
    /// Time spent in the queue for admission, and runnable without a run permit.
    pub waited: Duration,
    /// Most memory reserved at once, in bytes.
    pub peak_memory_bytes: u64,
    /// One for each sub query, in request order.
    pub sub_queries: Vec<SubQueryStats>,
}

/// Statistics of one sub query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubQueryStats {
    /// Its index in the request (`queryIndex`).
    pub index: usize,
    /// Names to UIDs (`stringToUidTime`).
    pub string_to_uid: Duration,
    /// Merging the series of all scans (`saltScannerMergeTime`).
    pub scanner_merge: Duration,
    /// From the start of the first scan to the end of the last (`queryScanTime`).
    pub query_scan: Duration,
    /// Sorting series into groups (`groupByTime`).
    pub group_by: Duration,
    /// Aggregating the groups (`aggregationTime`).
    pub aggregation: Duration,
    /// UIDs of the result to names (`uidToStringTime`).
    pub uid_to_string: Duration,
    /// Writing its series (`serializationTime`); set by the HTTP layer.
    pub serialization: Duration,
    /// From its start to its end (`totalTime`).
    pub total: Duration,
    /// Points of the rows of its series: one for each instant, however many cells a row has.
    pub read_points: u64,
    /// Points of its result (`emittedDPs`).
    pub emitted_points: u64,
    /// Points of the result that are NaN (`nanDPs`).
    pub nan_points: u64,
    /// Interval of the rollups that the result is made of; `None` if it is made of points.
    pub rollup_interval: Option<String>,
    /// One for each scan, in the order of their key ranges (`scannerStats`).
    pub scanners: Vec<ScannerStats>,
}

impl SubQueryStats {
    /// Adds the scans and the work of another read, without the time that its scans took together.
    pub(crate) fn add_read(&mut self, read: Self) {
        self.scanner_merge += read.scanner_merge;
        self.group_by += read.group_by;
        self.aggregation += read.aggregation;
        self.read_points += read.read_points;
        self.scanners.extend(read.scanners);
    }
}

/// Statistics of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannerStats {
    /// Name of the scanned range (`scannerId`).
    pub id: String,
    /// True if it completed (`successfulScan`).
    pub successful: bool,
    /// Rows read (`rowsFromStorage`).
    pub rows: u64,
    /// Cells read (`columnsFromStorage`); a packed run counts its points.
    pub cells: u64,
    /// Bytes read (`bytesFromStorage`).
    pub bytes: u64,
    /// Rows before the filters that were not pushed down (`rowsPreFilter`).
    pub rows_pre_filter: u64,
    /// Cells of these rows (`dpsPreFilter`).
    pub cells_pre_filter: u64,
    /// Rows that every filter accepts (`rowsPostFilter`).
    pub rows_post_filter: u64,
    /// Cells of these rows (`dpsPostFilter`).
    pub cells_post_filter: u64,
    /// Summaries of hours and days that were read.
    pub summaries: u64,
    /// Time of waiting for the store (`hbaseTime`).
    pub store: Duration,
    /// Time of decoding rows (`compactionTime`).
    pub compaction: Duration,
    /// Time of resolving UIDs to names for filters after the scan (`scannerUidToStringTime`).
    pub uid_to_string: Duration,
    /// Tag value UIDs whose names were looked up (`uidPairsResolved`).
    pub uid_pairs_resolved: u64,
    /// From open to end (`scannerTime`).
    pub total: Duration,
}

impl ScannerStats {
    /// Adds the statistics of a later batch of the same scan.
    pub(crate) fn add(&mut self, batch: &Self) {
        self.rows += batch.rows;
        self.cells += batch.cells;
        self.bytes += batch.bytes;
        self.rows_pre_filter += batch.rows_pre_filter;
        self.cells_pre_filter += batch.cells_pre_filter;
        self.rows_post_filter += batch.rows_post_filter;
        self.cells_post_filter += batch.cells_post_filter;
        self.summaries += batch.summaries;
        self.store += batch.store;
        self.compaction += batch.compaction;
        self.uid_to_string += batch.uid_to_string;
        self.uid_pairs_resolved += batch.uid_pairs_resolved;
        self.total += batch.total;
    }
}

impl SubQueryStats {
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

    /// Summaries of hours and days that all scans read.
    #[must_use]
    pub fn summaries(&self) -> u64 {
        self.scanners.iter().map(|scanner| scanner.summaries).sum()
    }

    /// Bytes read by all scans.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.scanners.iter().map(|scanner| scanner.bytes).sum()
    }
}
