//! The name of a table, and its form in the names of files.

use std::{fmt, sync::Arc};

const FILE_PREFIX: &str = "t.";

/// Name of a table. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(Arc<str>);

impl Table {
    /// Longest [`Self::file_name`], bytes. Derived file names are up to 55 bytes longer, and file systems allow
    /// 255.
    pub const MAX_FILE_NAME: usize = 200;

    /// A table with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// Name of the table.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one component of a path: `t.` in front, so that it differs from other files and from `..`, and
    /// every byte except ASCII letters, digits, `-`, `_` and `.` as `%` with two hexadecimal digits.
    ///
    /// Every file name with the name of a table is derived from this name.
    #[must_use]
    pub fn file_name(&self) -> String {
        let mut name = String::from(FILE_PREFIX);
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                name.push(char::from(byte));
            } else {
                name.push('%');
                for nibble in [byte >> 4, byte & 0x0F] {
                    name.extend(char::from_digit(u32::from(nibble), 16));
                }
            }
        }
        name
    }

    /// Parses a [`Self::file_name`]; `None` for other names.
    #[must_use]
    pub fn of_file_name(name: &str) -> Option<Self> {
        let mut rest = name.strip_prefix(FILE_PREFIX)?.bytes();
        let mut bytes = Vec::with_capacity(name.len());
        while let Some(byte) = rest.next() {
            let mut nibble = || char::from(rest.next()?).to_digit(16);
            bytes.push(match byte {
                b'%' => u8::try_from(nibble()? << 4 | nibble()?).ok()?,
                byte => byte,
            });
        }
        let table = Self::new(std::str::from_utf8(&bytes).ok()?);
        (table.file_name() == name).then_some(table)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 37.
    #[test]
    fn names_of_tables_are_escaped_in_names_of_files() {
        for (name, file_name) in [
            ("tsdb-uid", "t.tsdb-uid"),
            ("ns:tsdb/../x", "t.ns%3atsdb%2f..%2fx"),
            ("/user/mapr/tsdb", "t.%2fuser%2fmapr%2ftsdb"),
            ("..", "t..."),
            ("", "t."),
            ("\u{e4}%", "t.%c3%a4%25"),
        ] {
            let table = Table::new(name);
            assert_eq!(table.file_name(), file_name);
            assert_eq!(Table::of_file_name(file_name), Some(table));
        }
    }

    /// Issue 37.
    #[test]
    fn other_names_of_files_are_those_of_no_table() {
        for name in
            ["", "t", "tsdb", "t.a%", "t.a%2", "t.a%2F", "t.%61", "t.a/b", "t.ns:a", "t.%ff"]
        {
            assert_eq!(Table::of_file_name(name), None, "{name}");
        }
    }
}
