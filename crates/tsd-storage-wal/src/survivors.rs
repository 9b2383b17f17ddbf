//! Survivor files: the unflushed rows of a memtable whose other rows are flushed.
//!
//! A segment has the rows of all tables and is removed once all of them are flushed. Rows of a table that cannot
//! be flushed would keep every later segment until the log is full. So such rows are relocated, as the cleaner of
//! a log-structured store relocates live data. They are copied to a separate file, and then the segments are
//! removed.
//!
//! All survivor files together are one memtable, the oldest. They are removed once it is flushed. The state of
//! the log names them ([`LogState`](crate::log::LogState)).
//!
//! ```text
//! file    = "SVR1" | number u64 | CRC32C of both | block... | end
//! block   = length u32 | CRC32C of the payload | payload
//! payload = table length u16 | table | base i64, epoch milliseconds | row...
//! row     = key length u16 | key | length u32 | operations (`row_op`)
//! end     = a block of the payload 0 u16 | rows u64                                     (big-endian)
//! ```

mod found;

use std::io;

use tsd_storage::{Table, UnknownVersion};

pub(crate) use self::found::Survivors;

use crate::{
    files::{LogDir, LogFile},
    memtable::{CopiedRows, MAX_COPIED_BYTES, Memtable, RowRange, TableId},
};

const PREFIX: &str = "survivors-";
const NEW_FILE: &str = "survivors.new";
const MAGIC: [u8; 4] = *b"SVR1";
const HEADER: usize = 16;
const BLOCK_HEADER: usize = 8;
/// Bytes of a payload in addition to the table name and the rows.
const BLOCK_FIELDS: usize = 10;
/// Bytes of a row in addition to its key and operations.
const ROW_FIELDS: u64 = 6;
/// Bytes of the payload of the end block.
const END: usize = 10;
/// Number of rows that are copied under one lock.
const MAX_COPIED_ROWS: usize = 256;

/// Rows of a table from a start key up to a stop key, exclusive; an empty stop means no bound.
#[derive(Clone, Debug)]
pub(crate) struct RelocatedRange {
    pub(crate) id: TableId,
    pub(crate) table: Table,
    pub(crate) start: Vec<u8>,
    pub(crate) stop: Vec<u8>,
}

/// Size of a survivor file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SurvivorSize {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// Name of a survivor file.
pub(crate) fn survivor_name(number: u64) -> String {
    format!("{PREFIX}{number:016}")
}

/// Number in the name of a survivor file; `None` for other names.
pub(crate) fn survivor_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == 16)?;
    digits.parse().ok()
}

/// Numbers of the survivor files in a directory, in order.
pub(crate) fn survivors_in(dir: &dyn LogDir) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> =
        dir.list()?.iter().filter_map(|name| survivor_of_name(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Maximum number of bytes that [`write`] writes.
pub(crate) fn size_bound(memtable: &Memtable, ranges: &[RelocatedRange]) -> u64 {
    let of_range = |range: &RelocatedRange| {
        let size = memtable.range_size(range.id, &range.start, &range.stop);
        // A block is closed by the number of its rows or by their bytes.
        let blocks = size.rows / MAX_COPIED_ROWS as u64 + size.bytes / MAX_COPIED_BYTES as u64 + 1;
        let block_header = (BLOCK_HEADER + BLOCK_FIELDS + range.table.as_str().len()) as u64;
        size.bytes + size.rows * ROW_FIELDS + blocks * block_header
    };
    HEADER as u64 + ranges.iter().map(of_range).sum::<u64>() + (BLOCK_HEADER + END) as u64
}

/// Calls `visit` with batches of the rows of a range of a memtable.
pub(crate) fn visit_rows<E>(
    memtable: &Memtable,
    range: &RelocatedRange,
    mut visit: impl FnMut(&CopiedRows) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = Some(range.start.clone());
    while let Some(start) = next {
        let rows = RowRange {
            start: &start,
            stop: &range.stop,
            filter: None,
            max_rows: MAX_COPIED_ROWS,
            with_summaries: false,
        };
        let mut copied = memtable.copy_range(range.id, rows);
        next = copied.next.take();
        visit(&copied)?;
    }
    Ok(())
}

/// Writes rows of a memtable to a survivor file, which is then either complete and durable, or absent.
pub(crate) fn write(
    dir: &dyn LogDir,
    number: u64,
    memtable: &Memtable,
    ranges: &[RelocatedRange],
) -> io::Result<SurvivorSize> {
    write_with(dir, number, |file, size| {
        ranges.iter().try_for_each(|range| write_range(file, size, memtable, range))
    })
}

/// Writes a survivor file without rows.
pub(crate) fn write_empty(dir: &dyn LogDir, number: u64) -> io::Result<()> {
    write_with(dir, number, |_, _| Ok(())).map(|_| ())
}

fn write_with(
    dir: &dyn LogDir,
    number: u64,
    write_rows: impl FnOnce(&mut dyn LogFile, &mut SurvivorSize) -> io::Result<()>,
) -> io::Result<SurvivorSize> {
    remove_if_present(dir, NEW_FILE)?;
    let written = write_new(dir, number, write_rows);
    if written.is_err() {
        // Frees the space for a full disk. If this fails, the next write or start removes the file.
        let _ = remove_if_present(dir, NEW_FILE);
    }
    written
}

fn write_new(
    dir: &dyn LogDir,
    number: u64,
    write_rows: impl FnOnce(&mut dyn LogFile, &mut SurvivorSize) -> io::Result<()>,
) -> io::Result<SurvivorSize> {
    let mut header = [&MAGIC[..], &number.to_be_bytes()].concat();
    header.extend_from_slice(&crc32c::crc32c(&header).to_be_bytes());
    let mut file = dir.create(NEW_FILE)?;
    file.write_at(0, &header)?;
    let mut size = SurvivorSize { rows: 0, bytes: HEADER as u64 };
    write_rows(&mut *file, &mut size)?;
    let end = [&0_u16.to_be_bytes()[..], &size.rows.to_be_bytes()].concat();
    write_block(&mut *file, &mut size.bytes, &end)?;
    file.sync_data()?;
    dir.rename(NEW_FILE, &survivor_name(number))?;
    dir.sync()?;
    Ok(size)
}

fn write_range(
    file: &mut dyn LogFile,
    size: &mut SurvivorSize,
    memtable: &Memtable,
    range: &RelocatedRange,
) -> io::Result<()> {
    let mut payload = Vec::new();
    visit_rows(memtable, range, |copied| {
        if copied.row_count() == 0 {
            return Ok(());
        }
        payload.clear();
        push_short(range.table.as_str().as_bytes(), &mut payload);
        payload.extend_from_slice(&memtable.base_ms().to_be_bytes());
        for (key, ops) in (0..copied.row_count()).filter_map(|at| copied.row(at)) {
            push_short(key, &mut payload);
            payload.extend_from_slice(&(ops.len() as u32).to_be_bytes());
            payload.extend_from_slice(ops);
            size.rows += 1;
        }
        write_block(file, &mut size.bytes, &payload)
    })
}

fn write_block(file: &mut dyn LogFile, at: &mut u64, payload: &[u8]) -> io::Result<()> {
    let mut header = Vec::with_capacity(BLOCK_HEADER);
    header.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    header.extend_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    file.write_at(*at, &header)?;
    file.write_at(*at + BLOCK_HEADER as u64, payload)?;
    *at += (BLOCK_HEADER + payload.len()) as u64;
    Ok(())
}

/// Keys and table names have at most 32 KiB.
fn push_short(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Reads a survivor file. Calls `visit` with the table, the timestamp base and the rows of each block. `None` if
/// the file is missing or damaged; `visit` may have been called for some blocks then.
pub(crate) fn read<E: From<io::Error>>(
    dir: &dyn LogDir,
    number: u64,
    mut visit: impl FnMut(&str, i64, &CopiedRows) -> Result<(), E>,
) -> Result<Option<SurvivorSize>, E> {
    let name = survivor_name(number);
    let part = |offset: u64, len: usize| match dir.read(&name, offset, len) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    let header = part(0, HEADER)?;
    let is_header = header.split_last_chunk::<4>().is_some_and(|(sealed, crc)| {
        crc32c::crc32c(sealed) == u32::from_be_bytes(*crc)
            && sealed.strip_prefix(&MAGIC) == Some(&number.to_be_bytes())
    });
    if !is_header {
        return Ok(None);
    }
    let mut size = SurvivorSize { rows: 0, bytes: HEADER as u64 };
    let mut copied = CopiedRows::default();
    loop {
        let header = part(size.bytes, BLOCK_HEADER)?;
        let Some((length, crc)) = decode_block_header(&header) else { return Ok(None) };
        let payload = part(size.bytes + BLOCK_HEADER as u64, length)?;
        if payload.len() != length || crc32c::crc32c(&payload) != crc {
            return Ok(None);
        }
        size.bytes += (BLOCK_HEADER + length) as u64;
        copied.clear();
        match decode_payload(&payload, &mut copied) {
            Some(Payload::Rows { table, base_ms }) => {
                size.rows += copied.row_count() as u64;
                visit(table, base_ms, &copied)?;
            }
            Some(Payload::End { rows }) => return Ok((rows == size.rows).then_some(size)),
            None => return Ok(None),
        }
    }
}

enum Payload<'a> {
    Rows { table: &'a str, base_ms: i64 },
    End { rows: u64 },
}

fn decode_block_header(header: &[u8]) -> Option<(usize, u32)> {
    let (length, rest) = header.split_first_chunk::<4>()?;
    let crc = rest.first_chunk::<4>()?;
    Some((u32::from_be_bytes(*length) as usize, u32::from_be_bytes(*crc)))
}

fn decode_payload<'a>(mut rest: &'a [u8], copied: &mut CopiedRows) -> Option<Payload<'a>> {
    let table = std::str::from_utf8(take_short(&mut rest)?).ok()?;
    if table.is_empty() {
        return Some(Payload::End { rows: u64::from_be_bytes(*take(&mut rest)?) });
    }
    let base_ms = i64::from_be_bytes(*take(&mut rest)?);
    while !rest.is_empty() {
        let key = take_short(&mut rest)?;
        let length = u32::from_be_bytes(*take(&mut rest)?) as usize;
        let (ops, after) = rest.split_at_checked(length)?;
        rest = after;
        copied.push(key, ops);
    }
    Some(Payload::Rows { table, base_ms })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(taken)
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16::from_be_bytes(*take(rest)?);
    let (taken, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    Some(taken)
}

/// The first survivor file of another version, if any. Its first bytes end with another digit than [`MAGIC`].
pub(crate) fn unknown_version(dir: &dyn LogDir) -> io::Result<Option<UnknownVersion>> {
    for number in survivors_in(dir)? {
        let name = survivor_name(number);
        let header = dir.read(&name, 0, HEADER)?;
        let Some((sealed, crc)) = header.split_last_chunk::<4>() else { continue };
        let is_intact = crc32c::crc32c(sealed) == u32::from_be_bytes(*crc);
        if is_intact
            && let [b'S', b'V', b'R', digit, ..] = *sealed
            && !sealed.starts_with(&MAGIC)
        {
            let (what, file) = ("file of relocated rows", dir.path().join(name));
            let version = digit.wrapping_sub(b'0');
            return Ok(Some(UnknownVersion::new(what, file.display(), version, 1)));
        }
    }
    Ok(None)
}

/// Removes a file if it exists.
pub(crate) fn remove_if_present(dir: &dyn LogDir, name: &str) -> io::Result<()> {
    match dir.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::sync::Arc;

    use tsd_model::Family;
    use tsd_storage::{CellBatch, CellRef};

    use super::*;
    use crate::{change::Change, files::faulty::FaultyDisk, memtable::BufferPool};

    fn memtable() -> Memtable {
        let memtable = Memtable::new(3, 7, Arc::new(BufferPool::new(0)));
        for row in 0..700_u32 {
            let key = row.to_be_bytes();
            let (family, qualifier, value) = (Family::T, &b"q"[..], &b"value"[..]);
            let cell = CellRef { family, qualifier, value, timestamp_ms: None };
            let batch = CellBatch::single(&key, cell).unwrap();
            memtable.apply(TableId(row as usize % 2), &Change::Put(batch), 5_000, 1);
        }
        memtable
    }

    fn ranges() -> [RelocatedRange; 2] {
        [0, 1].map(|id| RelocatedRange {
            id: TableId(id),
            table: Table::new(&format!("t{id}")),
            start: 100_u32.to_be_bytes().to_vec(),
            stop: 650_u32.to_be_bytes().to_vec(),
        })
    }

    /// Table, key and operations.
    type FoundRow = (String, Vec<u8>, Vec<u8>);

    fn rows(disk: &FaultyDisk) -> Option<Vec<FoundRow>> {
        let mut rows = Vec::new();
        let size = read::<io::Error>(disk, 4, |table, base_ms, copied| {
            assert_eq!(base_ms, 7);
            rows.extend((0..copied.row_count()).map(|at| {
                let (key, ops) = copied.row(at).unwrap();
                (table.to_owned(), key.to_vec(), ops.to_vec())
            }));
            Ok(())
        });
        size.unwrap().map(|_| rows)
    }

    #[test]
    fn reading_inverts_writing_and_any_flipped_bit_or_cut_is_damage() {
        let (disk, memtable) = (FaultyDisk::new(1), memtable());
        assert!(rows(&disk).is_none(), "missing");
        let size = write(&disk, 4, &memtable, &ranges()).unwrap();
        let bound = size_bound(&memtable, &ranges());
        assert!((size.bytes..=size.bytes + 100).contains(&bound), "{bound} for {size:?}");
        let found = rows(&disk.after_power_cut()).unwrap();
        assert_eq!((found.len(), size.rows), (550, 550));
        for (table, key, ops) in &found {
            let id = TableId(usize::from(table == "t1"));
            assert_eq!(memtable.row_ops(id, key).as_ref(), Some(ops));
        }
        let name = survivor_name(4);
        let len = disk.read(&name, 0, 1 << 20).unwrap().len();
        assert_eq!(len as u64, size.bytes);
        for at in (0..len).step_by(13) {
            disk.edit(&name, |bytes| bytes[at] ^= 4);
            assert!(rows(&disk).is_none(), "byte {at}");
            disk.edit(&name, |bytes| bytes[at] ^= 4);
        }
        for cut in (0..len).step_by(17) {
            let disk = disk.after_kill();
            disk.truncate(&name, cut as u64).unwrap();
            assert!(rows(&disk).is_none(), "cut at {cut}");
        }
    }
}
