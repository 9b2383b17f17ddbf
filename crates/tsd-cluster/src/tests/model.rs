//! Model checker: visits every order of events of a small log. The actors are the owner, which may continue as a
//! zombie; a recoverer, which may die and start again; a third node that reads; and the table, which may lose
//! answers and execute requests late.
//!
//! The recoverer is a live node with its own log. One correction in that log is modelled. The log itself needs
//! no model, because only its commit times depend on the recovery.
//!
//! The owner writes the ops of one cell (put, delete, put), so that the replay of a superseded op shows in the
//! cell. Planted faults show that the search finds violations.

mod reads;
mod search;
mod table;
mod world;

use self::{
    search::{Found, search},
    world::{Faults, Limits, World},
};

/// One append to one segment, with a request that is executed late.
const SMALL: Limits = Limits {
    appends: 1,
    segments: 1,
    hedges: 0,
    doubts: 0,
    lates: 1,
    recoverers: 1,
    beats: 0,
    times: 0,
    reads: 0,
    is_corrected: false,
    is_long_segment: true,
};
/// A read by another node, and a correction in the recoverer's own log.
const READ: Limits =
    Limits { appends: 2, lates: 0, beats: 1, times: 2, reads: 1, is_corrected: true, ..SMALL };
/// Reads with a lost answer, and a recoverer that starts again.
const READ_LOST: Limits =
    Limits { appends: 1, doubts: 1, recoverers: 2, is_corrected: false, ..READ };
/// A hedge, and a request that is executed late.
const LATE: Limits = Limits { appends: 2, segments: 2, hedges: 1, ..SMALL };
/// A segment for each record, a lost answer, and a recoverer that starts again.
const LOST: Limits = Limits {
    appends: 2,
    segments: 2,
    doubts: 1,
    lates: 0,
    recoverers: 2,
    is_long_segment: false,
    ..SMALL
};
/// Three appends and a hedge.
const LONG: Limits = Limits { appends: 3, segments: 3, hedges: 1, lates: 0, ..SMALL };

#[track_caller]
fn holds(limits: Limits) {
    match search(World::new(limits, Faults::default())) {
        Found::Nothing { states } => {
            println!("{states} states");
            assert!(states > 10_000, "{states}");
        }
        Found::Violation { what, steps } => panic!("{what} after:\n{}", steps.join("\n")),
    }
}

#[track_caller]
fn is_found(limits: Limits, faults: Faults, expected: &str) {
    match search(World::new(limits, faults)) {
        Found::Nothing { states } => panic!("{faults:?} is not found in {states} states"),
        Found::Violation { what, steps } => {
            println!("{what} after:\n{}", steps.join("\n"));
            assert!(what.contains(expected), "{what}");
        }
    }
}

#[test]
fn nothing_is_lost_or_resurrected_by_late_requests() {
    holds(LATE);
}

#[test]
fn nothing_is_lost_or_resurrected_by_lost_answers() {
    holds(LOST);
}

#[test]
fn nothing_is_lost_or_resurrected_by_hedges_and_trims() {
    holds(LONG);
}

#[test]
fn reads_of_other_nodes_see_what_is_acknowledged() {
    holds(READ);
    holds(READ_LOST);
}

#[test]
fn held_rows_without_a_proof_are_found() {
    let faults = Faults { skips_proof: true, ..Faults::default() };
    is_found(READ, faults, "acknowledged and not read");
}

#[test]
fn held_rows_whose_view_follows_the_proof_are_found() {
    let faults = Faults { proves_first: true, ..Faults::default() };
    is_found(READ, faults, "acknowledged and not read");
}

#[test]
fn a_lease_that_appends_extend_is_found() {
    let faults = Faults { extends_by_append: true, ..Faults::default() };
    is_found(READ, faults, "the correction is acknowledged and not read");
}

#[test]
fn a_lease_that_the_recoverer_does_not_await_is_found() {
    let faults = Faults { skips_wait: true, ..Faults::default() };
    is_found(READ, faults, "the correction is acknowledged and not read");
}

#[test]
fn a_read_that_asks_nobody_after_a_recovery_is_found() {
    let faults = Faults { believes_stored: true, ..Faults::default() };
    is_found(READ, faults, "the correction is acknowledged and not read");
}

#[test]
fn reads_before_the_end_of_a_recovery_are_found() {
    let faults = Faults { settles_early: true, ..Faults::default() };
    is_found(READ, faults, "acknowledged and not read");
}

#[test]
fn corrections_below_the_commit_times_that_were_recovered_are_found() {
    let faults = Faults { ignores_floor: true, ..Faults::default() };
    is_found(READ, faults, "not the correction");
}

#[test]
fn appends_without_the_check_of_the_fence_are_found() {
    let faults = Faults { ignores_fence: true, ..Faults::default() };
    is_found(SMALL, faults, "acknowledged after its fence");
}

#[test]
fn segments_that_are_not_confirmed_are_found() {
    let faults = Faults { skips_confirmation: true, ..Faults::default() };
    is_found(SMALL, faults, "acknowledged after its fence");
}

#[test]
fn attempts_that_share_their_token_are_found() {
    let faults = Faults { shares_tokens: true, ..Faults::default() };
    is_found(SMALL, faults, "acknowledged after its fence");
}

#[test]
fn a_replay_from_before_the_watermark_is_found() {
    let faults = Faults { ignores_watermark: true, ..Faults::default() };
    is_found(SMALL, faults, "replayed although it is trimmed");
}

#[test]
fn a_watermark_before_the_flush_is_found() {
    let faults = Faults { trims_early: true, ..Faults::default() };
    is_found(SMALL, faults, "trimmed before its flush");
}

#[test]
fn duplicates_that_are_replayed_are_found() {
    let faults = Faults { keeps_duplicates: true, ..Faults::default() };
    is_found(LATE, faults, "the cell has");
}

#[test]
fn a_recoverer_that_does_not_fence_is_found() {
    let faults = Faults { skips_fence: true, ..Faults::default() };
    is_found(SMALL, faults, "acknowledged after its fence");
}
