//! Writes rows that the backend can never accept to files next to the log.
//!
//! Such a row was acknowledged, so it must not be dropped. If it waited for its flush, however, its memtable and
//! the log could never be removed, and in the end writes would be rejected. Instead, its cells are written to
//! `refused-<number>`, for an operator to restore.
//!
//! Each line is an operation. The operations must be executed in the order of the lines. Bytes are hexadecimal
//! digits:
//!
//! ```text
//! delete-row TABLE ROW UNTIL_MS
//! delete TABLE ROW FAMILY QUALIFIER UNTIL_MS
//! put TABLE ROW FAMILY QUALIFIER TIMESTAMP_MS VALUE
//! ```
//!
//! After a crash, a row may be in the files twice. The total size of the files is limited; rows beyond the limit
//! stay in the log.

use std::{
    fmt::{self, Write},
    io,
    time::{Duration, Instant},
};

use tsd_model::to_hex;
use tsd_storage::{FlushRow, StorageError, Table};

use crate::files::{LogDir, LogFile};

const PREFIX: &str = "refused-";
/// Limit on the bytes of all dead-letter files together.
const MAX_BYTES: u64 = 64 << 20;
/// Minimum interval between two messages about dead letters.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The dead-letter file and the log messages about it.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    file: DeadLetterFile,
    /// Rows that were written since the last log message.
    unlogged_rows: u64,
    logged: Option<Instant>,
}

impl DeadLetters {
    /// Writes a row that was rejected with `error`. Returns true if the row is in the file.
    pub(super) fn write(
        &mut self,
        dir: &dyn LogDir,
        table: &Table,
        row: &FlushRow<'_>,
        error: &StorageError,
    ) -> bool {
        match self.file.append(dir, table, row) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                let dir = dir.path().display();
                tracing::warn!(%dir, %error, "cannot write the dead-letter file");
                return false;
            }
        }
        self.unlogged_rows += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            tracing::error!(
                %table,
                row = %Hex(row.key),
                rows = self.unlogged_rows,
                dir = %dir.path().display(),
                %error,
                "the backend rejects rows permanently; they are in the dead-letter file"
            );
            (self.unlogged_rows, self.logged) = (0, Some(Instant::now()));
        }
        true
    }
}

/// The dead-letter file of this process, created with the first row.
#[derive(Debug)]
struct DeadLetterFile {
    max_bytes: u64,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: Box<dyn LogFile>,
    len: u64,
    /// Bytes of all earlier files.
    earlier_bytes: u64,
}

impl Default for DeadLetterFile {
    fn default() -> Self {
        Self { max_bytes: MAX_BYTES, open: None }
    }
}

impl DeadLetterFile {
    /// Appends a row durably. Returns false if the limit is reached.
    fn append(&mut self, dir: &dyn LogDir, table: &Table, row: &FlushRow<'_>) -> io::Result<bool> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenFile::create(dir, self.max_bytes)?,
        };
        let lines = lines(table, row);
        if open.earlier_bytes + open.len + lines.len() as u64 > self.max_bytes {
            self.open = Some(open);
            return Ok(false);
        }
        // After a failure, the next row goes to another file, because the end of this file is unknown.
        open.file.write_at(open.len, lines.as_bytes())?;
        open.file.sync_data()?;
        open.len += lines.len() as u64;
        self.open = Some(open);
        Ok(true)
    }
}

impl OpenFile {
    fn create(dir: &dyn LogDir, max_bytes: u64) -> io::Result<Self> {
        let (mut earlier_bytes, mut last_number) = (0, 0);
        for name in dir.list()? {
            if let Some(number) = name.strip_prefix(PREFIX).and_then(|n| n.parse::<u64>().ok()) {
                last_number = last_number.max(number);
                earlier_bytes += dir.read(&name, 0, max_bytes as usize)?.len() as u64;
            }
        }
        let file = dir.create(&format!("{PREFIX}{:06}", last_number + 1))?;
        dir.sync()?;
        Ok(Self { file, len: 0, earlier_bytes })
    }
}

fn lines(table: &Table, row: &FlushRow<'_>) -> String {
    let (mut lines, key) = (String::new(), Hex(row.key));
    // A write to a string cannot fail.
    if let Some(until_ms) = row.delete_row {
        let _ = writeln!(lines, "delete-row {table} {key} {until_ms}");
    }
    for (family, qualifier, until_ms) in &row.deletes {
        let (family, qualifier) = (family.as_str(), Hex(qualifier));
        let _ = writeln!(lines, "delete {table} {key} {family} {qualifier} {until_ms}");
    }
    for cell in &row.cells {
        let (family, qualifier, value) =
            (cell.family.as_str(), Hex(cell.qualifier), Hex(cell.value));
        let at_ms = cell.timestamp_ms;
        let _ = writeln!(lines, "put {table} {key} {family} {qualifier} {at_ms} {value}");
    }
    lines
}

/// Formats bytes as hexadecimal digits, and no bytes as a dash.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        f.write_str(&to_hex(self.0))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::Family;
    use tsd_storage::FlushCell;

    use super::*;
    use crate::files::faulty::FaultyDisk;

    fn row(value: &[u8]) -> FlushRow<'_> {
        let cell = FlushCell { family: Family::T, qualifier: b"\x01", value, timestamp_ms: 7 };
        let deletes = vec![(Family::Name, &b"\xab\x0c"[..], 6)];
        FlushRow { key: b"\0key", delete_row: None, deletes, cells: vec![cell] }
    }

    fn text(disk: &FaultyDisk, name: &str) -> String {
        String::from_utf8(disk.read(name, 0, 1 << 20).unwrap()).unwrap()
    }

    #[test]
    fn each_operation_of_a_row_is_a_line() {
        let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
        let mut file = DeadLetterFile::default();
        assert!(file.append(&disk, &table, &row(b"")).unwrap());
        let whole = FlushRow { delete_row: Some(5), deletes: Vec::new(), ..row(b"v") };
        assert!(file.append(&disk, &table, &whole).unwrap());
        let expected = "delete tsdb 006B6579 name AB0C 6\nput tsdb 006B6579 t 01 7 -\n\
                        delete-row tsdb 006B6579 5\nput tsdb 006B6579 t 01 7 76\n";
        assert_eq!(text(&disk.after_power_cut(), "refused-000001"), expected);
    }

    #[test]
    fn all_files_together_are_bounded() {
        let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
        let open = || DeadLetterFile { max_bytes: 200, open: None };
        let mut file = open();
        assert!(file.append(&disk, &table, &row(b"1")).unwrap());
        assert!(file.append(&disk, &table, &row(b"2")).unwrap());
        assert!(!file.append(&disk, &table, &row(&[7; 100])).unwrap());
        let mut file = open();
        assert!(file.append(&disk, &table, &row(b"3")).unwrap());
        assert!(!file.append(&disk, &table, &row(b"4")).unwrap());
        assert!(text(&disk, "refused-000002").ends_with(" 33\n"));
    }
}
