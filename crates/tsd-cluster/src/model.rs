//! Every order of events of a small log: its owner, which may go on as a zombie, a recoverer, which may die and
//! begin again, and the table, which may lose answers and execute requests late.
//!
//! The owner writes the ops of one cell (put, delete, put): a replay of what was superseded shows in the cell.
//! Planted faults show that the search would find what it looks for.

mod search;
mod table;
mod world;

use self::{
    search::{Found, search},
    world::{Faults, Limits, World},
};

/// Hedged appends to long segments, and a removal after a trim.
const HEDGES: Limits = Limits {
    appends: 3,
    segments: 3,
    hedges: 1,
    doubts: 1,
    lates: 1,
    recoverers: 2,
    is_long_segment: true,
};
/// A segment for each record.
const SEGMENTS: Limits = Limits { appends: 2, segments: 3, hedges: 0, ..HEDGES };

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
fn nothing_is_lost_or_resurrected_with_hedges() {
    holds(HEDGES);
}

#[test]
fn nothing_is_lost_or_resurrected_with_many_segments() {
    holds(Limits { is_long_segment: false, ..SEGMENTS });
}

#[test]
fn appends_without_the_check_of_the_fence_are_found() {
    let faults = Faults { ignores_fence: true, ..Faults::default() };
    is_found(HEDGES, faults, "acknowledged after its fence");
}

#[test]
fn segments_that_are_not_confirmed_are_found() {
    let faults = Faults { skips_confirmation: true, ..Faults::default() };
    is_found(SEGMENTS, faults, "acknowledged after its fence");
}

#[test]
fn a_replay_from_before_the_watermark_is_found() {
    let faults = Faults { ignores_watermark: true, ..Faults::default() };
    is_found(HEDGES, faults, "replayed although it is trimmed");
}

#[test]
fn a_watermark_before_the_flush_is_found() {
    let faults = Faults { trims_early: true, ..Faults::default() };
    is_found(HEDGES, faults, "trimmed before its flush");
}

#[test]
fn duplicates_that_are_replayed_are_found() {
    let faults = Faults { keeps_duplicates: true, ..Faults::default() };
    is_found(HEDGES, faults, "the cell has");
}

#[test]
fn a_recoverer_that_does_not_fence_is_found() {
    let faults = Faults { skips_fence: true, ..Faults::default() };
    is_found(HEDGES, faults, "acknowledged after its fence");
}
