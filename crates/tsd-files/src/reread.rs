//! Repeats failed reads of a disk, so that transient errors do not count as damage.
//!
//! Some errors do not repeat: a timeout of a controller, a path that failed over, a bad page in memory. So
//! only an error of several reads is damage, and all reads after the first bypass the page cache.

use std::{io, thread, time::Duration};

use metrics::counter;
use rustix::io::Errno;
use tsd_storage::RECOVERED_READS;

/// Repetitions of a read that failed.
const REREADS: u32 = 3;
/// Pause before the first repetition after an error of the disk; each further pause is longer by this time.
const PAUSE: Duration = Duration::from_millis(10);

/// Source of the bytes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVia {
    /// The page cache, or the disk.
    PageCache,
    /// The disk, where the file system allows it.
    Disk,
}

/// Whether a failed read may succeed when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread {
    /// Another read would fail in the same way.
    Never,
    /// The disk may have the right bytes although the page cache has not.
    AtOnce,
    /// The disk failed.
    AfterPause,
}

impl Reread {
    /// Classifies an error of the file system.
    #[must_use]
    pub fn after(error: &io::Error) -> Self {
        if is_medium_error(error) { Self::AfterPause } else { Self::Never }
    }
}

/// Failure of a read of checked bytes.
#[derive(Debug)]
pub enum CheckedReadError {
    /// The bytes differ from the written bytes.
    Mismatch,
    /// The file system failed.
    Io(io::Error),
}

/// True if the disk cannot return the stored bytes.
#[must_use]
pub fn is_medium_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Calls `read`, and repeats it a few times at most while `reread` classifies its error as transient. A
/// success after a repetition is counted and logged with the name of the file.
///
/// # Errors
///
/// The error of the last read.
pub fn read_repeatedly<T, E>(
    file: &str,
    mut read: impl FnMut(ReadVia) -> Result<T, E>,
    reread: impl Fn(&E) -> Reread,
) -> Result<T, E> {
    let mut result = read(ReadVia::PageCache);
    for repetition in 1..=REREADS {
        match result.as_ref().map_err(&reread) {
            Ok(_) | Err(Reread::Never) => break,
            Err(Reread::AtOnce) => {}
            Err(Reread::AfterPause) => thread::sleep(PAUSE * repetition),
        }
        result = read(ReadVia::Disk);
        if result.is_ok() {
            note_recovered_read(file);
        }
    }
    result
}

/// Counts and logs a read that succeeded when it was repeated.
pub fn note_recovered_read(file: &str) {
    counter!(RECOVERED_READS).increment(1);
    tracing::warn!(file, "a failed read of a file succeeded when it was repeated: nothing is lost");
}

/// Fills `bytes` by `read` from the file with this name. Repeats the read if the disk fails or `is_intact`
/// returns false.
///
/// # Errors
///
/// The failure of the last read.
pub fn read_checked(
    file: &str,
    bytes: &mut [u8],
    read: impl Fn(ReadVia, &mut [u8]) -> io::Result<()>,
    is_intact: impl Fn(&[u8]) -> bool,
) -> Result<(), CheckedReadError> {
    let read = |via| {
        read(via, bytes).map_err(CheckedReadError::Io)?;
        if is_intact(bytes) { Ok(()) } else { Err(CheckedReadError::Mismatch) }
    };
    read_repeatedly(file, read, |error| match error {
        CheckedReadError::Mismatch => Reread::AtOnce,
        CheckedReadError::Io(error) => Reread::after(error),
    })
}

/// Calls `read`, and repeats it while the disk fails.
pub(crate) fn read_past_errors<T>(
    file: &str,
    mut read: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    read_repeatedly(file, |_| read(), Reread::after)
}
