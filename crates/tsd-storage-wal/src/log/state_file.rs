//! The state file of a log: its identity, its last segment, and how far it was removed.
//!
//! The segments alone cannot show that the first, the last or all segments are missing; this file can. It is
//! updated before a new segment takes its first record, and before flushed segments are removed. So it never
//! names a segment that a crash may have left out.
//!
//! ```text
//! file   = slot | slot, of 512 bytes each
//! slot   = "SWS1" | flags u8 (1: tied to a store), 0 * 3 | version u64 | log id, 16 bytes
//!        | last segment u64 | its first sequence u64 | created i64, epoch milliseconds
//!        | last removed segment u64 | sequence after it u64 | CRC32C of bytes 0..72      (big-endian)
//! ```
//!
//! While there are survivor files ([`survivors`](crate::survivors)), a slot begins with "SWS2". Before its
//! checksum, it then has the numbers of the first and the last survivor file.
//!
//! The valid slot with the higher version counts; an update overwrites the other slot. It needs no disk space, so
//! a full disk does not prevent the removal of segments.
//!
//! In every format, a slot begins with "SWS" and a digit, and has its version at byte 8. It ends with the
//! checksum of all bytes before; only zeros follow. So the state of another release is distinguished from a
//! damaged state.

use std::{io, sync::Arc};

use tsd_storage::UnknownVersion;

use super::record::MAX_NUMBER;
use crate::files::{LogDir, LogFile};

/// Name of the file.
pub(crate) const STATE_FILE: &str = "log.state";
const NEW_FILE: &str = "log.state.new";
const MAGIC: [u8; 4] = *b"SWS1";
const MAGIC_WITH_SURVIVORS: [u8; 4] = *b"SWS2";
/// Common start of the magic of every format.
const STEM: &[u8] = b"SWS";
/// Size of a slot, which is a sector of its own.
const SLOT: usize = 512;
const ENCODED: usize = 76;
const ENCODED_WITH_SURVIVORS: usize = ENCODED + 16;
/// Upper limit of survivor files, above any real number. Opening a log looks for all of them.
const MAX_SURVIVORS: u64 = 1 << 20;

/// Contents of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Random number of the log, chosen at its creation.
    pub(crate) id: u128,
    /// True if the store has recorded the id. Before that, a store without a mark is no loss.
    pub(crate) is_tied: bool,
    /// The last segment that may contain records; 0 without segments.
    pub(crate) last_segment: u64,
    /// Sequence number of the first record of that segment.
    pub(crate) last_first_sequence: u64,
    /// Time at which that segment was created, epoch milliseconds.
    pub(crate) last_created_ms: i64,
    /// The last segment that may be removed. All of its records are flushed.
    pub(crate) removed_segment: u64,
    /// Sequence number of the first record after that segment.
    pub(crate) removed_to: u64,
    /// Numbers of the first and the last survivor file; `None` without survivor files.
    pub(crate) survivors: Option<(u64, u64)>,
}

/// Result of reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundState {
    /// The file does not exist.
    Missing,
    /// The file has no valid slot.
    Damaged,
    Valid(LogState),
}

/// The open state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    dir: Arc<dyn LogDir>,
    /// `None` until the file exists.
    file: Option<Box<dyn LogFile>>,
    version: u64,
    /// The last saved state; `None` after an error.
    saved: Option<LogState>,
}

impl LogState {
    pub(crate) fn encode(&self, version: u64) -> [u8; SLOT] {
        let mut out = Vec::with_capacity(SLOT);
        let magic = if self.survivors.is_some() { MAGIC_WITH_SURVIVORS } else { MAGIC };
        out.extend_from_slice(&magic);
        out.extend_from_slice(&[u8::from(self.is_tied), 0, 0, 0]);
        out.extend_from_slice(&version.to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.last_segment.to_be_bytes());
        out.extend_from_slice(&self.last_first_sequence.to_be_bytes());
        out.extend_from_slice(&self.last_created_ms.to_be_bytes());
        out.extend_from_slice(&self.removed_segment.to_be_bytes());
        out.extend_from_slice(&self.removed_to.to_be_bytes());
        if let Some((first, last)) = self.survivors {
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&last.to_be_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        let mut slot = [0; SLOT];
        slot.iter_mut().zip(out).for_each(|(to, byte)| *to = byte);
        slot
    }

    /// Decodes a slot into version and state; `None` if the slot is invalid.
    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let magic = *slot.first_chunk::<4>()?;
        let encoded = match magic {
            MAGIC => ENCODED,
            MAGIC_WITH_SURVIVORS => ENCODED_WITH_SURVIVORS,
            _ => return None,
        };
        let (sealed, crc) = slot.get(..encoded)?.split_last_chunk::<4>()?;
        if crc32c::crc32c(sealed) != u32::from_be_bytes(*crc) {
            return None;
        }
        let (flags, rest) = sealed.strip_prefix(&magic)?.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let (numbers, _) = rest.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
        let state = Self {
            id: u128::from_be_bytes(*id),
            is_tied: flags.first().is_some_and(|flags| flags & 1 != 0),
            last_segment: numbers.next()?,
            last_first_sequence: numbers.next()?,
            last_created_ms: numbers.next()? as i64,
            removed_segment: numbers.next()?,
            removed_to: numbers.next()?,
            survivors: numbers.next().zip(numbers.next()),
        };
        let version = u64::from_be_bytes(*version);
        (version <= MAX_NUMBER && state.is_possible()).then_some((version, state))
    }

    /// False for numbers that no log reaches. They are damage, even if the checksum is right.
    fn is_possible(&self) -> bool {
        let numbers =
            [self.last_segment, self.last_first_sequence, self.removed_segment, self.removed_to];
        let survivors = self.survivors.unwrap_or_default();
        let has_survivors = survivors.1.checked_sub(survivors.0).is_some_and(|n| n < MAX_SURVIVORS);
        has_survivors && numbers.iter().chain([&survivors.1]).all(|number| *number <= MAX_NUMBER)
    }
}

/// The state in the bytes of a file, and its version; `None` if no slot is valid.
pub(crate) fn newest_state(bytes: &[u8]) -> Option<(u64, LogState)> {
    bytes.chunks(SLOT).filter_map(LogState::decode).max_by_key(|(version, _)| *version)
}

/// The error of a state that another release wrote, if the newest intact slot has another format.
pub(crate) fn unknown_state(dir: &dyn LogDir) -> io::Result<Option<UnknownVersion>> {
    let bytes = match dir.read(STATE_FILE, 0, 2 * SLOT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let newest = bytes.chunks(SLOT).filter_map(slot_format).max_by_key(|(version, _)| *version);
    let unknown = newest.filter(|(_, magic)| ![MAGIC, MAGIC_WITH_SURVIVORS].contains(magic));
    Ok(unknown.map(|(_, [.., format])| {
        let file = dir.path().join(STATE_FILE);
        UnknownVersion::new("state of the log", file.display(), char::from(format), "1 and 2")
    }))
}

/// Version and magic of an intact slot of any format.
fn slot_format(slot: &[u8]) -> Option<(u64, [u8; 4])> {
    let magic = *slot.first_chunk::<4>().filter(|magic| magic.starts_with(STEM))?;
    let version = slot.get(8..)?.first_chunk::<8>()?;
    let end = slot.iter().rposition(|byte| *byte != 0)? + 1;
    // The checksum may end with zeros.
    let is_intact = (end..=end + 3)
        .filter_map(|end| slot.get(..end)?.split_last_chunk::<4>())
        .any(|(sealed, crc)| crc32c::crc32c(sealed) == u32::from_be_bytes(*crc));
    is_intact.then(|| (u64::from_be_bytes(*version), magic))
}

impl StateFile {
    /// A file that does not exist yet.
    pub(crate) const fn new(dir: Arc<dyn LogDir>) -> Self {
        Self { dir, file: None, version: 0, saved: None }
    }

    /// Reads the file. Changes nothing on disk.
    pub(crate) fn load(dir: &Arc<dyn LogDir>) -> io::Result<(Self, FoundState)> {
        let mut loaded = Self::new(Arc::clone(dir));
        if !dir.list()?.iter().any(|name| name == STATE_FILE) {
            return Ok((loaded, FoundState::Missing));
        }
        let bytes = dir.read(STATE_FILE, 0, 2 * SLOT)?;
        let Some((version, state)) = newest_state(&bytes) else {
            return Ok((loaded, FoundState::Damaged));
        };
        loaded.file = Some(dir.open(STATE_FILE)?);
        loaded.version = version;
        loaded.saved = Some(state);
        Ok((loaded, FoundState::Valid(state)))
    }

    /// True if this process knows that the file exists.
    pub(crate) const fn exists(&self) -> bool {
        self.file.is_some()
    }

    /// Saves a state durably. After an error, the file has this state or the previous one.
    pub(crate) fn save(&mut self, state: LogState) -> io::Result<()> {
        if self.saved.replace(state) == Some(state) {
            return Ok(());
        }
        self.write(state).inspect_err(|_| self.saved = None)
    }

    fn write(&mut self, state: LogState) -> io::Result<()> {
        let version = self.version + 1;
        let slot = state.encode(version);
        if let Some(file) = &mut self.file {
            file.write_at(version % 2 * SLOT as u64, &slot)?;
            file.sync_data()?;
        } else {
            self.file = Some(self.create(version, &slot)?);
        }
        self.version = version;
        Ok(())
    }

    /// Creates the file completely or not at all.
    fn create(&self, version: u64, slot: &[u8]) -> io::Result<Box<dyn LogFile>> {
        match self.dir.remove(NEW_FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = self.dir.create(NEW_FILE)?;
        // Both slots are written, so that later updates need no space.
        file.write_at(0, &[0; 2 * SLOT])?;
        file.write_at(version % 2 * SLOT as u64, slot)?;
        file.sync_data()?;
        self.dir.rename(NEW_FILE, STATE_FILE)?;
        self.dir.sync()?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::files::faulty::FaultyDisk;

    fn load(disk: &FaultyDisk) -> (StateFile, FoundState) {
        let dir: Arc<dyn LogDir> = Arc::new(disk.clone());
        StateFile::load(&dir).unwrap()
    }

    fn numbered(number: u64) -> LogState {
        LogState { id: 7, last_segment: number, last_created_ms: -1, ..LogState::default() }
    }

    #[test]
    fn last_saved_state_is_loaded() {
        let disk = FaultyDisk::new(1);
        let (mut file, found) = load(&disk);
        assert_eq!(found, FoundState::Missing);
        for number in 1..5 {
            file.save(numbered(number)).unwrap();
            assert_eq!(load(&disk.after_power_cut()).1, FoundState::Valid(numbered(number)));
        }
        let (mut file, _) = load(&disk);
        file.save(numbered(9)).unwrap();
        assert_eq!(load(&disk).1, FoundState::Valid(numbered(9)));
    }

    #[test]
    fn power_cut_leaves_the_state_before_or_after() {
        for calls in 1..12 {
            for seed in 0..20 {
                let disk = FaultyDisk::new(seed);
                let (mut file, _) = load(&disk);
                disk.cut_power_after(calls);
                let mut saved = 0;
                while file.save(numbered(saved + 1)).is_ok() {
                    saved += 1;
                }
                let found = load(&disk.after_power_cut()).1;
                let state = |number| match number {
                    0 => FoundState::Missing,
                    number => FoundState::Valid(numbered(number)),
                };
                let allowed = [state(saved), state(saved + 1)];
                assert!(allowed.contains(&found), "{found:?}, not one of {allowed:?}");
            }
        }
    }

    #[test]
    fn damaged_file_is_detected_and_a_full_disk_does_not_prevent_an_update() {
        let disk = FaultyDisk::new(1);
        load(&disk).0.save(numbered(1)).unwrap();
        let (mut file, _) = load(&disk);
        file.save(numbered(2)).unwrap();
        assert_eq!(load(&disk).1, FoundState::Valid(numbered(2)));
        disk.edit(STATE_FILE, |bytes| bytes.fill(0xff));
        assert_eq!(load(&disk).1, FoundState::Damaged);
    }

    #[test]
    fn numbers_that_no_log_reaches_are_damage() {
        let decoded = |state: LogState, version| LogState::decode(&state.encode(version));
        let with = |survivors| LogState { survivors: Some(survivors), ..numbered(MAX_NUMBER) };
        for state in [numbered(MAX_NUMBER), with((5, 5)), with((5, 4 + MAX_SURVIVORS))] {
            assert_eq!(decoded(state, MAX_NUMBER), Some((MAX_NUMBER, state)));
            assert_eq!(decoded(state, MAX_NUMBER + 1), None);
        }
        let over = MAX_NUMBER + 1;
        for state in [
            numbered(over),
            LogState { last_first_sequence: over, ..numbered(1) },
            LogState { removed_segment: over, ..numbered(1) },
            LogState { removed_to: over, ..numbered(1) },
            with((5, 5 + MAX_SURVIVORS)),
            with((6, 5)),
            with((over, over)),
            with((0, u64::MAX)),
        ] {
            assert_eq!(decoded(state, 1), None, "{state:?}");
        }
    }

    /// Writes a slot of format 3 of 80 to 120 bytes.
    fn write_slot_of_format_3(disk: &FaultyDisk, version: u64) {
        disk.edit(STATE_FILE, |bytes| {
            let slot = &mut bytes[(version % 2) as usize * SLOT..][..SLOT];
            let len = 80 + (version % 40) as usize;
            slot.fill(0);
            slot[..len].fill(7);
            slot[..4].copy_from_slice(b"SWS3");
            slot[8..16].copy_from_slice(&version.to_be_bytes());
            let crc = crc32c::crc32c(&slot[..len]).to_be_bytes();
            slot[len..len + 4].copy_from_slice(&crc);
        });
    }

    #[test]
    fn a_newer_state_of_another_format_is_recognized() {
        let disk = FaultyDisk::new(1);
        assert_eq!(unknown_state(&disk).unwrap(), None);
        load(&disk).0.save(numbered(1)).unwrap();
        for version in 2..1_000 {
            assert_eq!(unknown_state(&disk.after_kill()).unwrap(), None);
            let disk = disk.after_kill();
            write_slot_of_format_3(&disk, version);
            let text = unknown_state(&disk).unwrap().unwrap().to_string();
            assert!(
                text.contains("log.state has version 3, this release reads 1 and 2:"),
                "{text}"
            );
        }
        // In the meantime, that release has written a state that is readable here.
        write_slot_of_format_3(&disk, 2);
        let (mut file, _) = load(&disk);
        file.version = 2;
        file.save(numbered(3)).unwrap();
        assert_eq!(unknown_state(&disk).unwrap(), None);
        assert_eq!(load(&disk).1, FoundState::Valid(numbered(3)));
    }

    #[test]
    fn a_flipped_bit_is_no_other_format() {
        let disk = FaultyDisk::new(1);
        load(&disk).0.save(numbered(1)).unwrap();
        let survivors = Some((1, 2));
        load(&disk).0.save(LogState { survivors, ..numbered(2) }).unwrap();
        for bit in 0..2 * SLOT * 8 {
            let disk = disk.after_kill();
            disk.edit(STATE_FILE, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            assert_eq!(unknown_state(&disk).unwrap(), None, "bit {bit}");
        }
    }
}
