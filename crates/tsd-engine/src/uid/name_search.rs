//! Search of names by any part of them. It reads all names of a kind, so its caller limits its time.

use std::fmt;

use bytes::Bytes;
use tsd_meta::UidError;
use tsd_model::{Family, UidKind, decode_latin1, encode_latin1_lossy};
use tsd_storage::{RowScanner, Scan};

use super::admin::{ShownNames, UidAdmin};

/// Names that contain a text, ignoring the case of ASCII letters, read in batches.
pub struct NameSearch<'a> {
    rows: Box<dyn RowScanner>,
    part: Vec<u8>,
    is_shown: Option<ShownNames<'a>>,
    /// Most names that may follow.
    left: usize,
    matching: usize,
}

impl fmt::Debug for NameSearch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameSearch").field("matching", &self.matching).finish_non_exhaustive()
    }
}

impl NameSearch<'_> {
    /// Reads more names, and returns the matching ones in byte order while fewer than the maximum were returned; `None`
    /// at the end.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<String>>, UidError> {
        let Some(batch) = self.rows.next_rows().await? else { return Ok(None) };
        let mut names = Vec::new();
        for row in batch {
            let is_shown = self.is_shown.as_ref().is_none_or(|is_shown| is_shown(&row.key));
            if is_shown && contains(&row.key, &self.part) {
                self.matching += 1;
                if self.left > 0 {
                    self.left -= 1;
                    names.push(decode_latin1(&row.key));
                }
            }
        }
        Ok(Some(names))
    }

    /// Number of matching names so far, also those over the maximum.
    #[must_use]
    pub const fn matching(&self) -> usize {
        self.matching
    }
}

/// True if `part` is in `name`, ignoring the case of ASCII letters.
fn contains(name: &[u8], part: &[u8]) -> bool {
    part.is_empty() || name.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

impl UidAdmin {
    /// Searches the names that contain `part`, and returns at most `max` of them. With `is_shown`, only names for whose
    /// stored bytes it returns true.
    #[must_use]
    pub fn search<'a>(
        &self,
        kind: UidKind,
        part: &str,
        max: usize,
        is_shown: Option<ShownNames<'a>>,
    ) -> NameSearch<'a> {
        let scan = Scan {
            // Skips the row of the UID counters.
            start: Bytes::from_static(b"!"),
            family: Some(Family::Id),
            qualifier: Some(Bytes::from_static(kind.as_str().as_bytes())),
            ..Scan::default()
        };
        let rows = self.table.storage.scan(&self.table.table, scan);
        let part = encode_latin1_lossy(part);
        NameSearch { rows, part, is_shown, left: max, matching: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_in_any_case() {
        for (name, part, expected) in [
            ("sys.CPU.user", "cpu", true),
            ("sys.cpu.user", "sys", true),
            ("sys.cpu.user", "user", true),
            ("sys.cpu.user", "", true),
            ("sys.cpu.user", "cpu.idle", false),
            ("sys", "sys.cpu", false),
        ] {
            assert_eq!(contains(name.as_bytes(), part.as_bytes()), expected, "{name} {part}");
        }
    }
}
