//! The last commit time, kept over restarts.
//!
//! Over a backend that keeps versions by time, a put that is stamped earlier than a delete before it
//! would stay hidden for ever. So commit times never fall: not when the clock is set back, and not
//! when a restart finds an empty log. A replay learns the last time from the records; before the
//! last of them goes, the time is noted in a file of its own.

use std::io;

use crate::files::LogDir;

const FILE: &str = "commit-time";
const NEW_FILE: &str = "commit-time.new";

/// The time that was noted last.
pub(crate) fn load(dir: &dyn LogDir) -> io::Result<Option<i64>> {
    if !dir.list()?.iter().any(|name| name == FILE) {
        return Ok(None);
    }
    let bytes = dir.read(FILE, 0, size_of::<Noted>())?;
    // Renamed into place when it was whole; what is no note says nothing.
    Ok(<Noted>::try_from(bytes).ok().and_then(decode))
}

/// Notes a time, whole or not at all.
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

/// The time, and its CRC32C; big-endian.
type Noted = [u8; 12];

fn encode(commit_ms: i64) -> Noted {
    let mut noted = [0; 12];
    let (time, crc) = noted.split_at_mut(8);
    time.copy_from_slice(&commit_ms.to_be_bytes());
    crc.copy_from_slice(&crc32c::crc32c(&commit_ms.to_be_bytes()).to_be_bytes());
    noted
}

fn decode(noted: Noted) -> Option<i64> {
    let commit_ms = i64::from_be_bytes(*noted.first_chunk()?);
    (encode(commit_ms) == noted).then_some(commit_ms)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::files::faulty::FaultyDisk;

    #[test]
    fn the_time_noted_last_is_found_again() {
        let disk = FaultyDisk::new(1);
        assert_eq!(load(&disk).unwrap(), None);
        for time in [5, 1_356_998_400_000, -3] {
            save(&disk, time).unwrap();
            assert_eq!(load(&disk.after_kill()).unwrap(), Some(time));
        }
    }

    #[test]
    fn noise_is_no_time() {
        let disk = FaultyDisk::new(1);
        disk.create(FILE).unwrap().write_at(0, b"twelve bytes").unwrap();
        assert_eq!(load(&disk).unwrap(), None);
    }
}
