//! Copies of files, synced.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::error::SnapshotError;

/// Bytes that are copied between two reports.
const PIECE: usize = 1 << 20;

/// Counts copied or linked bytes, and may end the transfer.
pub trait TransferMeter {
    /// Reports further copied or linked bytes.
    ///
    /// # Errors
    ///
    /// Ends the transfer.
    fn moved(&self, bytes: u64) -> Result<(), SnapshotError>;
}

/// Copies the first `bytes` of a file to a new file and syncs its contents, not its name. Returns
/// the CRC-32C of the copied bytes.
///
/// # Errors
///
/// [`SnapshotError::DamagedFile`] if the source has another size, or an error of the disk or of the
/// meter.
pub fn copy_file(
    (source, source_path): (&File, &Path),
    to: &Path,
    bytes: u64,
    meter: &dyn TransferMeter,
) -> Result<u32, SnapshotError> {
    let read = |error| SnapshotError::io("reading", source_path)(error);
    let size = source.metadata().map_err(read)?.len();
    if size != bytes {
        let what = format!("it has {size} bytes, not {bytes}");
        return Err(SnapshotError::DamagedFile { path: source_path.to_owned(), what });
    }
    let copy = File::create_new(to).map_err(SnapshotError::io("creating", to))?;
    let mut buffer = vec![0; PIECE.min(usize::try_from(bytes).unwrap_or(PIECE))];
    let mut at = 0;
    let mut crc = 0;
    while at < bytes {
        let len = PIECE.min(usize::try_from(bytes - at).unwrap_or(PIECE));
        let chunk = buffer.get_mut(..len).unwrap_or_default();
        source.read_exact_at(chunk, at).map_err(SnapshotError::io("reading", source_path))?;
        crc = crc32c::crc32c_append(crc, chunk);
        copy.write_all_at(chunk, at).map_err(SnapshotError::io("writing", to))?;
        at += len as u64;
        meter.moved(len as u64)?;
    }
    copy.sync_all().map_err(SnapshotError::io("syncing", to))?;
    Ok(crc)
}

/// Makes the names in a directory and its subdirectories durable.
///
/// # Errors
///
/// An error of the disk.
pub fn sync_directory(directory: &Path) -> Result<(), SnapshotError> {
    for below in directories_below(directory)? {
        sync_directory(&below)?;
    }
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(SnapshotError::io("syncing", directory))
}

fn directories_below(directory: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    };
    list().map_err(SnapshotError::io("listing", directory))
}
