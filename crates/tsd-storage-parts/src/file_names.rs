//! Names of part files, and the names by which operators see them. The manifest names its own files.

use tsd_storage::Table;

const SUFFIX: &str = ".part";
pub(crate) const ASIDE_SUFFIX: &str = ".part.damaged";

/// Name of a part file.
pub(crate) fn part_name(number: u64) -> String {
    format!("{number:010}{SUFFIX}")
}

/// Name of a damaged part file in quarantine.
pub(crate) fn aside_name(number: u64) -> String {
    format!("{number:010}{ASIDE_SUFFIX}")
}

/// Path of a part file below the store's directory, as operators see it.
pub(crate) fn shown_name(table: &Table, number: u64) -> String {
    format!("{}/{}", table.file_name(), part_name(number))
}

/// Name with which an operator accepts the loss of a part.
pub(crate) fn loss_name(table: &Table, number: u64) -> String {
    format!("{}-{number}", table.file_name())
}

/// Number of a part file; `None` for other names.
pub(crate) fn part_number(name: &str) -> Option<u64> {
    number_of(name, SUFFIX)
}

/// True for the name of a quarantined file.
pub(crate) fn is_quarantine_name(name: &str) -> bool {
    number_of(name, ASIDE_SUFFIX).is_some()
}

pub(crate) fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let are_digits = digits.len() >= 10 && digits.bytes().all(|b| b.is_ascii_digit());
    if are_digits { digits.parse().ok() } else { None }
}
