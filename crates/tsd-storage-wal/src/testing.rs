//! Decoders of the log for the fuzz targets. They skip the checksums in front.

use crate::{
    append_record::{APPEND, AppendRecord},
    change::Change,
    log::{LogState, newest_state},
};

/// Decodes the body of a record and encodes it again. Returns kind and body; `None` if the body is invalid.
#[must_use]
pub fn recode_record(kind: u8, body: &[u8]) -> Option<(u8, Vec<u8>)> {
    let mut again = Vec::new();
    if kind == APPEND {
        AppendRecord::decode(body)?.encode(&mut again);
        return Some((APPEND, again));
    }
    let kind = Change::decode(kind, body)?.encode(&mut again);
    Some((kind, again))
}

/// Decodes the state of a log and encodes it again. Returns its version and the file; `None` if the state is
/// invalid.
#[must_use]
pub fn recode_state(file: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (version, state) = newest_state(file)?;
    Some((version, LogState::encode(&state, version).to_vec()))
}

/// A state of a log with survivor files, as the log writes it.
#[must_use]
pub fn written_state() -> Vec<u8> {
    let state = LogState { id: 7, last_segment: 4, removed_segment: 2, ..LogState::default() };
    LogState { is_tied: true, survivors: Some((3, 5)), ..state }.encode(9).to_vec()
}
