//! Property test: an acknowledged correction is what is read, always.
//!
//! Random histories of puts and corrections in every spelling (seconds or milliseconds, integers and
//! floats of every width), appends, deletes, flushes, row compactions, restarts, kills and clock
//! changes run against a store and against a model that keeps the last acknowledged value of each
//! instant. Corrections and flushes also happen inside row compactions, at every point where one waits;
//! a correction inside a compaction of OpenTSDB is read when the daemons have read it back.
//! The cells are those that the ingest writes, the merge is that of queries, the row compaction that of
//! the compactor.
//!
//! A [`TestStores`] says what is tested: [`embedded`] has the embedded store and the memory store,
//! [`hbase`] two daemons and an OpenTSDB over one HBase.
//! `CORRECTION_SEEDS` sets the number of seeds per test, `CORRECTION_FIRST_SEED` the first of them, and
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

/// How a daemon ends before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It flushes everything.
    Clean,
    /// Its log is kept.
    Kill,
    /// It is killed after a flush and before the flushed part of its log is removed.
    KillAfterFlush,
}

/// One or several daemons over one table, and their clock.
pub(crate) trait TestStores {
    /// Number of daemons; steps of a history are for one of them.
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

    /// Greatest difference of a daemon's clock from the time.
    fn max_skew_ms(&self) -> i64 {
        0
    }

    /// Sets the difference of a daemon's clock from the time.
    fn set_skew(&mut self, _daemon: usize, _ms: i64) {}

    /// How long a daemon holds acknowledged writes that the others do not see; `None`: not at all.
    fn max_hold_ms(&self, _daemon: usize) -> Option<i64> {
        None
    }

    /// True if the daemon is an OpenTSDB: its cells have the time of the server, and it does not
    /// delete.
    fn is_opentsdb(&self, _daemon: usize) -> bool {
        false
    }

    /// False if a point that is put after a delete of its column may stay hidden. Row compactions delete
    /// too.
    fn can_delete(&self) -> bool {
        true
    }

    /// Passes a millisecond after a put of OpenTSDB, of which readers would decide between two in one
    /// millisecond by value or type, and after a delete, which takes longer than that.
    fn tick(&self) -> fn() {
        || {}
    }

    /// Compacts a row as OpenTSDB does: `before_put` and `before_delete` happen after its read and after
    /// its put. Returns true if it was rewritten.
    fn compact_as_opentsdb(
        &self,
        _row: Bytes,
        _before_put: impl Future<Output = ()>,
        _before_delete: impl Future<Output = ()>,
    ) -> impl Future<Output = bool> {
        std::future::ready(false)
    }

    /// Begins a compaction of OpenTSDB, which reads the row now. It puts and deletes when its buffers are
    /// sent.
    fn begin_compaction(&mut self, _row: Bytes) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Sends the buffers of OpenTSDB: the columns of its compactions, and the deletes of those whose
    /// column was sent before. Returns true if something was rewritten.
    fn send_compactions(&mut self) -> impl Future<Output = bool> {
        std::future::ready(false)
    }

    /// Flushes the memory of HBase, and compacts its files if `compacts`.
    fn flush_regions(&self, _compacts: bool) {}

    /// Number of the compactions that OpenTSDB has begun and not ended, of each series.
    fn open_compactions(&self) -> [usize; 2] {
        [0, 0]
    }

    /// Time of the first read of these compactions.
    fn compacting_since(&self) -> Option<i64> {
        None
    }

    /// Does what is due: daemons read back what they wrote a while ago.
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

/// What the settings make of two values of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `fix_duplicates`: the last acknowledged value.
    Newest,
    /// Without it: an error or the last acknowledged value.
    Refuse,
    /// `use_otsdb_timestamp`: all cells of an instant have one time, and the largest value wins.
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
        // A flush may remove one meanwhile.
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
