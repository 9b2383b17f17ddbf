//! Names of the files of parts, and the names of them that operators see. Manifests have names of their own.

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

/// Path of a part file for operators, below the store's directory.
pub(crate) fn shown_name(table: &Table, number: u64) -> String {
    format!("t.{table}/{}", part_name(number))
}

/// Name by which the loss of a part is accepted.
pub(crate) fn loss_name(table: &Table, number: u64) -> String {
    format!("t.{table}-{number}")
}

/// Number of a part file; `None` for other names.
pub(crate) fn part_number(name: &str) -> Option<u64> {
    number_of(name, SUFFIX)
}

/// True for the name of a file in quarantine.
pub(crate) fn is_quarantine_name(name: &str) -> bool {
    number_of(name, ASIDE_SUFFIX).is_some()
}

pub(crate) fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let are_digits = digits.len() >= 10 && digits.bytes().all(|b| b.is_ascii_digit());
    if are_digits { digits.parse().ok() } else { None }
}
