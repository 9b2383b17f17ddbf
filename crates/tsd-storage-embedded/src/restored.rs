//! Checks files that were restored from a snapshot, before they are opened as a store.

use std::path::Path;

use tsd_files::{ListedFile, SnapshotError, TransferMeter};
use tsd_storage::FileChecksum;

use crate::directories::{POINTS, STORE};

/// Verifies the files of a store in a data directory: every block of the parts, and the checksums
/// of the files of trees. Other files were verified when they were copied.
///
/// # Errors
///
/// Names the first file that is missing or damaged; also an error of the disk or of the meter.
pub fn verify_restored(
    data: &Path,
    files: &[ListedFile],
    meter: &dyn TransferMeter,
) -> Result<(), SnapshotError> {
    for file in files {
        let FileChecksum::Xxh3(expected) = file.checksum else { continue };
        let path = data.join(&file.path);
        let found = tsd_storage_lsm::file_checksum(&path).map_err(|source| SnapshotError::Io {
            action: "reading",
            path: path.clone(),
            source,
        })?;
        if found != expected {
            let what = "its checksum is wrong".to_owned();
            return Err(SnapshotError::DamagedFile { path, what });
        }
        meter.moved(file.bytes)?;
    }
    let mut ended = Ok(());
    let mut moved = |bytes| {
        ended = meter.moved(bytes);
        ended.is_ok()
    };
    let verified = tsd_storage_parts::verify_tables(&data.join(STORE).join(POINTS), &mut moved);
    ended?;
    Ok(verified?)
}
