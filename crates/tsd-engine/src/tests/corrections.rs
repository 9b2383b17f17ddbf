//! Property test: reads always return the last acknowledged correction.
//!
//! Random histories run against a store and against a model, which keeps the last acknowledged value of each instant.
//! A history has puts and corrections in every spelling (seconds or milliseconds, integers and floats of every width),
//! appends, deletes, flushes, row compactions, restarts, kills and clock changes. Corrections and flushes also happen
//! inside row compactions, at every point where one waits. A correction inside a compaction of OpenTSDB counts after
//! the daemons have read it back. Ingest writes the cells, queries merge them, and the compactor compacts the rows.
//!
//! A [`TestStores`] is the system under test: [`embedded`] has the embedded store and the memory store; [`hbase`] has
//! two daemons and an OpenTSDB over one HBase. `CORRECTION_SEEDS` sets the number of seeds per test,
//! `CORRECTION_FIRST_SEED` the first seed; `CORRECTION_SEED` runs a single seed.
//! `CORRECTION_SEED` runs one.

#![expect(
    clippy::indexing_slicing,
    clippy::trivially_copy_pass_by_ref,
    clippy::unwrap_used,
    reason = "tests"
)]

mod embedded;
mod hbase;
mod history;
mod model;
mod run;

use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tsd_storage::Storage;

use self::{
    history::{History, Rng},
    run::Run,
};

/// How a daemon ends before it is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It flushes everything.
    Clean,
    /// It is killed; its log is kept.
    Kill,
    /// It is killed after a flush, before the flushed segments of its log are removed.
    KillAfterFlush,
}

/// One or several daemons over one table, and their clock.
pub(crate) trait TestStores {
    /// Number of daemons. Each step of a history is for one of them.
    fn daemons(&self) -> usize;

    /// The store of a daemon.
    fn store(&self, daemon: usize) -> Arc<dyn Storage>;

    /// Ends a daemon and starts it again.
    fn restart(&mut self, daemon: usize, how: Ending) -> impl Future<Output = ()>;

    /// Changes the clock of all daemons.
    fn move_clock(&mut self, by_ms: i64);

    /// The time, epoch milliseconds; the clock of a daemon may differ.
    fn now_ms(&self) -> i64 {
        0
    }

    /// Largest difference of a daemon's clock from the time.
    fn max_skew_ms(&self) -> i64 {
        0
    }

    /// Sets the difference of a daemon's clock from the time.
    fn set_skew(&mut self, _daemon: usize, _ms: i64) {}

    /// How long a daemon holds acknowledged writes that other daemons do not see; `None` if it holds none.
    fn max_hold_ms(&self, _daemon: usize) -> Option<i64> {
        None
    }

    /// True if the daemon is an OpenTSDB: its cells have the time of the server, and it does not delete points.
    fn is_opentsdb(&self, _daemon: usize) -> bool {
        false
    }

    /// False if a point that is put after a delete of its column may stay hidden. Row compactions delete columns too.
    fn can_delete(&self) -> bool {
        true
    }

    /// Lets a millisecond pass after a put of OpenTSDB and after a delete. Otherwise readers would decide between two
    /// puts in one millisecond by value or type; a real delete takes longer than a millisecond.
    fn tick(&self) -> fn() {
        || {}
    }

    /// Compacts a row as OpenTSDB does. `before_put` runs after its read, and `before_delete` after its put. Returns
    /// true if the row was rewritten.
    fn compact_as_opentsdb(
        &self,
        _row: Bytes,
        _before_put: impl Future<Output = ()>,
        _before_delete: impl Future<Output = ()>,
    ) -> impl Future<Output = bool> {
        std::future::ready(false)
    }

    /// Begins a compaction of OpenTSDB, which reads the row now. It puts and deletes when its buffers are sent.
    fn begin_compaction(&mut self, _row: Bytes) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Sends the buffers of OpenTSDB: the columns of its compactions, and the deletes of compactions whose column was
    /// sent before. Returns true if a row was rewritten.
    fn send_compactions(&mut self) -> impl Future<Output = bool> {
        std::future::ready(false)
    }

    /// Flushes the memory of HBase, and compacts its files if `compacts`.
    fn flush_regions(&self, _compacts: bool) {}

    /// Number of compactions of each series that OpenTSDB has begun and not ended.
    fn open_compactions(&self) -> [usize; 2] {
        [0, 0]
    }

    /// Time of the earliest read of these compactions.
    fn compacting_since(&self) -> Option<i64> {
        None
    }

    /// Does work that is due: daemons read back what they wrote a while ago.
    fn do_due(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Lets all compactions of OpenTSDB end, and the daemons read back what they have written.
    fn settle(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Ends all daemons.
    fn end(self) -> impl Future<Output = ()>;
}

/// Settings, with the value that a read may return for two values at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `fix_duplicates`: the last acknowledged value wins.
    Newest,
    /// Without it: an error or the last acknowledged value.
    Refuse,
    /// `use_otsdb_timestamp`: all cells of an instant have one timestamp, and the largest value wins.
    Largest,
    /// The same with `use_max_value` off.
    Smallest,
    /// `enable_appends`: the last acknowledged value.
    Appends,
}

/// Paths and contents of the segments of a log.
fn log_segments(log: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "wal"))
        // A flush may remove a segment meanwhile.
        .filter_map(|path| Some((path.clone(), fs::read(path).ok()?)))
        .collect()
}

/// Runs a history per seed on stores from `open`, which gets random numbers for its variants.
pub(crate) async fn check_seeds<S: TestStores>(
    mode: Mode,
    default_seeds: u64,
    open: impl AsyncFn(&mut Rng) -> S,
) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (first, count) = match number("CORRECTION_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("CORRECTION_FIRST_SEED").unwrap_or(0),
            number("CORRECTION_SEEDS").unwrap_or(default_seeds),
        ),
    };
    let seeds = first..first + count;
    let is_one = seeds.end - seeds.start == 1;
    let (mut rewritten, mut can_compact) = (0, true);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let stores = open(&mut rng).await;
        can_compact &= stores.can_delete();
        let history = History::random(&mut rng, stores.daemons(), stores.max_skew_ms());
        rewritten += Run::new(stores, mode, format!("{mode:?}, seed {seed}")).all(history).await;
    }
    assert!(is_one || !can_compact || rewritten > 0, "no row compaction has written anything");
}
