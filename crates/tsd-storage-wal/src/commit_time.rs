//! Saves the last commit time in a file.
//!
//! Commit times must never decrease, not even across restarts or when the clock is set back. Of two values of one
//! instant, the cell with the later time is newer. With a multi-writer backend, a put with an earlier timestamp
//! than a previous delete would stay hidden forever. A replay finds the last commit time in the log. Before
//! segments are removed, it is saved here.

use std::{io, time::Duration};

use crate::{files::LogDir, memtable::MAX_ADDED_MS, state::WalState};

/// How far the clock may be behind the log without a warning.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

const FILE: &str = "commit-time";
const NEW_FILE: &str = "commit-time.new";

/// Lower bound of all commit times from now on. `replayed_ms` is the last commit time in the log, `saved` the
/// time that was saved when segments were removed.
pub(crate) fn first(state: &WalState, replayed_ms: i64, saved: Option<i64>) -> i64 {
    // Later than all points of the log and its last delete.
    let last_ms = replayed_ms.max(saved.unwrap_or(i64::MIN));
    let first_ms = last_ms.saturating_add(MAX_ADDED_MS);
    let clock_lag = first_ms.saturating_sub((state.config.clock)());
    let clock_lag = Duration::from_millis(u64::try_from(clock_lag).unwrap_or(0));
    if clock_lag > CLOCK_TOLERANCE {
        tracing::warn!(
            ?clock_lag,
            "the clock is behind the log; commit times do not advance until it catches up"
        );
    }
    first_ms
}

/// Returns the saved time; `None` before the first save.
pub(crate) fn load(dir: &dyn LogDir) -> io::Result<Option<i64>> {
    if !dir.list()?.iter().any(|name| name == FILE) {
        return Ok(None);
    }
    let bytes = dir.read(FILE, 0, size_of::<SavedTime>())?;
    // A complete file was renamed into place; any other contents are ignored.
    Ok(<SavedTime>::try_from(bytes).ok().and_then(decode))
}

/// Name and contents of the file.
pub(crate) fn file(commit_ms: i64) -> (&'static str, Vec<u8>) {
    (FILE, encode(commit_ms).to_vec())
}

/// Saves a time atomically.
pub(crate) fn save(dir: &dyn LogDir, commit_ms: i64) -> io::Result<()> {
    match dir.remove(NEW_FILE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = dir.create(NEW_FILE)?;
    file.write_at(0, &encode(commit_ms))?;
    file.sync_data()?;
    dir.rename(NEW_FILE, FILE)?;
    dir.sync()
}

/// Big-endian: the time in epoch milliseconds, then the CRC32C of the time.
type SavedTime = [u8; 12];

fn encode(commit_ms: i64) -> SavedTime {
    let mut saved = [0; 12];
    let (time, crc) = saved.split_at_mut(8);
    time.copy_from_slice(&commit_ms.to_be_bytes());
    crc.copy_from_slice(&crc32c::crc32c(&commit_ms.to_be_bytes()).to_be_bytes());
    saved
}

fn decode(saved: SavedTime) -> Option<i64> {
    let commit_ms = i64::from_be_bytes(*saved.first_chunk()?);
    (encode(commit_ms) == saved).then_some(commit_ms)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::files::faulty::FaultyDisk;

    #[test]
    fn last_saved_time_is_loaded() {
        let disk = FaultyDisk::new(1);
        assert_eq!(load(&disk).unwrap(), None);
        for time in [5, 1_356_998_400_000, -3] {
            save(&disk, time).unwrap();
            assert_eq!(load(&disk.after_kill()).unwrap(), Some(time));
        }
    }

    #[test]
    fn file_without_a_checksum_is_ignored() {
        let disk = FaultyDisk::new(1);
        disk.create(FILE).unwrap().write_at(0, b"twelve bytes").unwrap();
        assert_eq!(load(&disk).unwrap(), None);
    }
}
