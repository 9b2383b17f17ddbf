//! Exit statuses of `tsdb uid`, which are OpenTSDB's, and the messages with them. `output.rs` prints results.

use tsd_engine::UidKind;
use tsd_meta::UidError;

use crate::{console::Stopped, tell};

/// Nothing was found, or the name is unknown.
pub(super) const NOT_FOUND: u8 = 1;
/// The command line is invalid.
pub(super) const USAGE: u8 = 2;
/// The store, or the daemon, failed.
pub(super) const FAILED: u8 = 3;
/// A name was not deleted although the store works.
pub(super) const NOT_DELETED: u8 = 4;
/// The store failed after the work was done, or a repair is impossible.
pub(super) const NOT_CLOSED: u8 = 42;

/// Prints why a name was not changed; returns the exit status.
pub(super) fn fail(error: &UidError, other: u8) -> u8 {
    match error {
        UidError::NoSuchName { kind, name } => {
            tell!("tsdb: No such name for '{kind}': '{name}'");
            NOT_FOUND
        }
        UidError::Storage(_) => {
            tell!("tsdb: the store failed: {error:#}");
            FAILED
        }
        error => {
            tell!("tsdb: {error:#}");
            if matches!(error, UidError::NotForgotten { .. }) { FAILED } else { other }
        }
    }
}

/// Prints that a signal stopped the command; returns the exit status.
pub(super) fn stopped(stopped: &Stopped) -> u8 {
    tell!("tsdb: {stopped}");
    stopped.signal.exit_status()
}

/// Prints that a name or a UID is unknown.
pub(super) fn not_found(kind: Option<UidKind>, word: &str) {
    let of_kind = kind.map(|kind| format!(" for '{kind}'")).unwrap_or_default();
    let what = if word.parse::<i64>().is_ok() { "unique ID" } else { "name" };
    tell!("tsdb: No such {what}{of_kind}: '{word}'");
}
