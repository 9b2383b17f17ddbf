//! Rows that the backend will never take, in a file beside the log.
//!
//! Such a row was acknowledged, so it is not dropped; but waiting for ever it would keep its whole
//! generation in memory, and the log behind it, until nothing more can be written. Whoever mends the
//! cause finds its cells in `refused-<number>`, a line each, bytes as hexadecimal digits, to be put in
//! the order of the lines:
//!
//! ```text
//! delete-row TABLE ROW UNTIL_MS
//! delete TABLE ROW FAMILY QUALIFIER UNTIL_MS
//! put TABLE ROW FAMILY QUALIFIER TIMESTAMP_MS VALUE
//! ```
//!
//! A row may be there twice, after a crash. The files together have a bound; beyond it rows wait.

use std::{
    fmt::{self, Write},
    io,
};

use tsd_storage::{FlushRow, Table};

use crate::files::{LogDir, LogFile};

const PREFIX: &str = "refused-";
/// Bytes of all files of refused rows.
const MOST_BYTES: u64 = 64 << 20;

/// Where refused rows go. A process writes a file of its own.
#[derive(Debug)]
pub(crate) struct SetAside {
    most_bytes: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: Box<dyn LogFile>,
    len: u64,
    /// Bytes of the files before it.
    before: u64,
}

impl Default for SetAside {
    fn default() -> Self {
        Self { most_bytes: MOST_BYTES, open: None }
    }
}

impl SetAside {
    /// Writes a row, durably. `false`: there is no room for it.
    pub(crate) fn write(
        &mut self,
        dir: &dyn LogDir,
        table: &Table,
        row: &FlushRow<'_>,
    ) -> io::Result<bool> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(dir, self.most_bytes)?,
        };
        let lines = lines(table, row);
        if open.before + open.len + lines.len() as u64 > self.most_bytes {
            self.open = Some(open);
            return Ok(false);
        }
        // After a failure the next row begins another file: nobody knows how this one ends.
        open.file.write_at(open.len, lines.as_bytes())?;
        open.file.sync_data()?;
        open.len += lines.len() as u64;
        self.open = Some(open);
        Ok(true)
    }
}

impl Open {
    fn new(dir: &dyn LogDir, most_bytes: u64) -> io::Result<Self> {
        let (mut before, mut number) = (0, 0);
        for name in dir.list()? {
            if let Some(found) = name.strip_prefix(PREFIX).and_then(|n| n.parse::<u64>().ok()) {
                number = number.max(found);
                before += dir.read(&name, 0, most_bytes as usize)?.len() as u64;
            }
        }
        let file = dir.create(&format!("{PREFIX}{:06}", number + 1))?;
        dir.sync()?;
        Ok(Self { file, len: 0, before })
    }
}

fn lines(table: &Table, row: &FlushRow<'_>) -> String {
    let (mut lines, key) = (String::new(), Hex(row.key));
    // Writing to a string does not fail.
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

/// Bytes as hexadecimal digits; no bytes as a dash.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
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
    fn a_row_is_a_line_a_cell() {
        let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
        let mut aside = SetAside::default();
        assert!(aside.write(&disk, &table, &row(b"")).unwrap());
        let whole = FlushRow { delete_row: Some(5), deletes: Vec::new(), ..row(b"v") };
        assert!(aside.write(&disk, &table, &whole).unwrap());
        let expected = "delete tsdb 006B6579 name AB0C 6\nput tsdb 006B6579 t 01 7 -\n\
                        delete-row tsdb 006B6579 5\nput tsdb 006B6579 t 01 7 76\n";
        assert_eq!(text(&disk.after_power_cut(), "refused-000001"), expected);
    }

    #[test]
    fn the_files_have_a_bound_together() {
        let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
        let open = || SetAside { most_bytes: 200, open: None };
        let mut aside = open();
        assert!(aside.write(&disk, &table, &row(b"1")).unwrap());
        assert!(aside.write(&disk, &table, &row(b"2")).unwrap());
        assert!(!aside.write(&disk, &table, &row(&[7; 100])).unwrap());
        let mut aside = open();
        assert!(aside.write(&disk, &table, &row(b"3")).unwrap());
        assert!(!aside.write(&disk, &table, &row(b"4")).unwrap());
        assert!(text(&disk, "refused-000002").ends_with(" 33\n"));
    }
}
