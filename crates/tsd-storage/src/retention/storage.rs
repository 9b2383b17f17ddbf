//! A decorator of stores that hides expired rows from every read of the daemon and its tools.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::Row;

use super::{Cutoffs, Retention, first_base};
use crate::{
    Get, Maintenance, RowScanner, Scan, SeriesBlock, SeriesRead, SeriesReads, SeriesScanner,
    SeriesVersion, Storage, StorageFuture, Table,
};

/// A store whose expired rows are not read. Writes pass unchecked: writers call
/// [`Retention::check_put`].
#[derive(Debug)]
pub struct RetainedStorage<S: ?Sized> {
    retention: Arc<Retention>,
    inner: Arc<S>,
}

/// Current expiry of a table.
struct Expiry {
    cutoffs: Arc<Cutoffs>,
    row_secs: u32,
}

impl<S: ?Sized> RetainedStorage<S> {
    /// Hides the expired rows of `inner`.
    pub const fn new(retention: Arc<Retention>, inner: Arc<S>) -> Self {
        Self { retention, inner }
    }

    /// The expiry of a table; `None` if its rows cannot expire.
    fn expiry(&self, table: &Table) -> Option<Expiry> {
        if self.retention.newest_cutoff() == 0 {
            return None;
        }
        let row_secs = self.retention.row_secs(table)?;
        Some(Expiry { cutoffs: self.retention.cutoffs(), row_secs })
    }

    /// First base time of the metric of a key, if the key has a metric.
    fn first_base(&self, expiry: &Expiry, key: &[u8]) -> Option<u32> {
        let metric = key.get(self.retention.metric.clone())?;
        Some(first_base(expiry.cutoffs.of_metric(metric), expiry.row_secs))
    }

    /// A later start of a scan, if the rows from `start` on are expired.
    fn scan_start(&self, expiry: &Expiry, start: &Bytes) -> Option<Bytes> {
        let first = self.first_base(expiry, start)?;
        let later = [start.get(..self.retention.metric.end)?, &first.to_be_bytes()].concat();
        (*later > start[..]).then(|| later.into())
    }
}

/// A scan without the expired rows.
struct RetainedScanner {
    inner: Box<dyn RowScanner>,
    retention: Arc<Retention>,
    expiry: Expiry,
    /// Most rows that the scan still returns.
    remaining: usize,
}

impl RowScanner for RetainedScanner {
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>> {
        Box::pin(async move {
            while self.remaining > 0 {
                let Some(mut rows) = self.inner.next_rows().await? else { return Ok(None) };
                let Expiry { cutoffs, row_secs } = &self.expiry;
                rows.retain(|row| !self.retention.is_expired(cutoffs, *row_secs, &row.key));
                rows.truncate(self.remaining);
                self.remaining -= rows.len();
                if !rows.is_empty() {
                    return Ok(Some(rows));
                }
            }
            Ok(None)
        })
    }
}

/// A read of nothing.
struct NoSeries;

impl SeriesScanner for NoSeries {
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>> {
        Box::pin(async { Ok(None) })
    }
}

impl<S: Storage + ?Sized> Storage for RetainedStorage<S> {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        if let Some(Expiry { cutoffs, row_secs }) = self.expiry(table)
            && self.retention.is_expired(&cutoffs, row_secs, &get.row)
        {
            return Box::pin(async { Ok(None) });
        }
        self.inner.get(table, get)
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        let Some(Expiry { cutoffs, row_secs }) = self.expiry(table) else {
            return self.inner.multi_get(table, gets);
        };
        let is_expired = |get: &Get| self.retention.is_expired(&cutoffs, row_secs, &get.row);
        let expired: Vec<bool> = gets.iter().map(is_expired).collect();
        if !expired.contains(&true) {
            return self.inner.multi_get(table, gets);
        }
        Box::pin(async move {
            let live = gets.into_iter().zip(&expired).filter(|(_, expired)| !**expired);
            let live = live.map(|(get, _)| get).collect();
            let mut rows = self.inner.multi_get(table, live).await?.into_iter();
            let row = |expired: bool| if expired { None } else { rows.next().flatten() };
            Ok(expired.into_iter().map(row).collect())
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let Some(expiry) = self.expiry(table) else { return self.inner.scan(table, scan) };
        let start = self.scan_start(&expiry, &scan.start).unwrap_or_else(|| scan.start.clone());
        let is_empty = !scan.stop.is_empty() && start >= scan.stop;
        // Rows that are expired do not count.
        let remaining = if is_empty { 0 } else { scan.limit.unwrap_or(usize::MAX) };
        let start = if is_empty { scan.start.clone() } else { start };
        let batch_rows = match (scan.batch_rows, scan.limit) {
            (Some(rows), Some(limit)) => Some(rows.min(limit)),
            (rows, limit) => rows.or(limit),
        };
        let inner = self.inner.scan(table, Scan { start, limit: None, batch_rows, ..scan });
        let retention = Arc::clone(&self.retention);
        Box::new(RetainedScanner { inner, retention, expiry, remaining })
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    forward_storage!(inner: write, read_version, table_exists, flush, close);
}

impl<S: Storage + ?Sized> SeriesReads for RetainedStorage<S> {
    fn below(&self) -> Option<&dyn SeriesReads> {
        Some(self.inner.series())
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        let Some(expiry) = self.expiry(table) else {
            return self.inner.series().read_series(table, read);
        };
        let mut firsts: Vec<u32> = Vec::new();
        for prefix in read.prefixes() {
            firsts.push(self.first_base(&expiry, &prefix)?);
        }
        firsts.dedup();
        let first = match firsts[..] {
            // No series: only checks that the store reads the table by series.
            [] => 0,
            [first] => first,
            // Series of metrics with different cut-offs are read by rows.
            _ => return None,
        };
        let bases = (read.bases.0.max(first), read.bases.1);
        if bases.0 > bases.1 {
            // Checks that the store reads the table by series.
            self.inner.series().read_series(table, read)?;
            return Some(Box::new(NoSeries));
        }
        self.inner.series().read_series(table, &SeriesRead { bases, ..read.clone() })
    }

    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        if let Some(expiry) = self.expiry(table) {
            // The expired rows change with the clock and the rules.
            for prefix in read.prefixes() {
                self.first_base(&expiry, &prefix).filter(|first| *first <= read.bases.0)?;
            }
        }
        self.inner.series().series_version(table, read)
    }
}

impl<S: Storage + ?Sized> Maintenance for RetainedStorage<S> {
    fn below(&self) -> Option<&dyn Maintenance> {
        Some(self.inner.maintenance())
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut gauges = self.inner.maintenance().gauges();
        gauges.push(("tsd_parts_retention_refused_puts_total", self.retention.refused() as f64));
        gauges
    }
}
