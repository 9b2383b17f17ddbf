//! Reads by a third node, and a correction in the recoverer's own log.

use std::collections::BTreeSet;

use super::world::{Steps, World};
use crate::{ManifestPhase, TableReply, TableRequest};

/// A read by the third node, which is neither owner nor recoverer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    /// Records that were acknowledged when the read began: the read must see them.
    must_see: BTreeSet<u64>,
    /// True if the correction was acknowledged when the read began.
    must_see_correction: bool,
    asked: Asked,
}

/// State of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// Looks for the owner of the slot.
    Nobody,
    /// The owner has taken a view of its held rows, and has to prove itself.
    Viewed(BTreeSet<u64>),
    /// The owner has proven itself, and takes its view only then: planted.
    ProvenFirst,
    /// The owner has responded.
    Covered(BTreeSet<u64>),
}

/// Another value of the same cell, which the recoverer accepts in its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Correction {
    time: u64,
    pub(super) is_flushed: bool,
}

/// The value of the correction.
pub(super) const CORRECTED: u64 = 100;

impl World {
    /// Steps of the read: it asks the owner of the slot, or after its recovery the next owner, then reads the table of
    /// points.
    pub(super) fn read_steps(&self, steps: &mut Steps) {
        let Some(read) = &self.read else {
            if self.limits.reads > 0 && !self.acknowledged.is_empty() {
                let mut next = self.clone();
                next.limits.reads -= 1;
                let must_see = self.acknowledged.clone();
                let must_see_correction = self.correction.is_some();
                next.read = Some(Read { must_see, must_see_correction, asked: Asked::Nobody });
                steps.push(("a read begins".to_owned(), next));
            }
            return;
        };
        match &read.asked {
            Asked::Nobody => self.ask_steps(steps),
            Asked::Viewed(view) => self.proof_steps(view, steps),
            Asked::ProvenFirst => {
                let mut next = self.clone();
                // A node that knows of its fence has dropped its rows.
                let is_dropped = self.owner.is_fenced;
                let view = if is_dropped { BTreeSet::new() } else { self.owner.memtable.clone() };
                next.ask(Asked::Covered(view));
                steps.push(("owner takes a view after its proof".to_owned(), next));
            }
            Asked::Covered(view) => {
                let mut next = self.clone();
                next.finish_read(view, false);
                steps.push(("reader reads the points".to_owned(), next));
            }
        }
    }

    fn ask_steps(&self, steps: &mut Steps) {
        // The assignment that the reader knows may be old.
        if self.faults.proves_first {
            if self.is_leased() {
                let mut next = self.clone();
                next.ask(Asked::ProvenFirst);
                steps.push(("reader asks the owner, which proves itself".to_owned(), next));
            }
        } else if !self.owner.is_fenced {
            let mut next = self.clone();
            next.ask(Asked::Viewed(self.owner.memtable.clone()));
            steps.push(("reader asks the owner, which takes a view".to_owned(), next));
        }
        let phase = self.table.manifest.as_ref().map(|manifest| manifest.phase);
        let is_early = self.faults.settles_early && phase == Some(ManifestPhase::Recovering);
        if self.is_retired() || is_early {
            let mut next = self.clone();
            next.finish_read(&BTreeSet::new(), !self.faults.believes_stored);
            steps.push(("reader asks the next owner, then reads the points".to_owned(), next));
        }
    }

    fn proof_steps(&self, view: &BTreeSet<u64>, steps: &mut Steps) {
        let covered = |mut next: Self, how: &str, steps: &mut Steps| {
            next.ask(Asked::Covered(view.clone()));
            steps.push((format!("owner proves itself{how}"), next));
        };
        if self.faults.skips_proof {
            return covered(self.clone(), " without a proof", steps);
        }
        if self.is_leased() {
            return covered(self.clone(), " by its lease", steps);
        }
        let Some(segment) = self.owner.log.open_tokens(0).first().copied() else { return };
        for (how, mut next, reply) in self.sent(&TableRequest::ConfirmSegment { segment }) {
            if reply == TableReply::Applied(true) {
                covered(next, &format!(" by an append{how}"), steps);
            } else {
                next.owner.is_fenced = true;
                next.ask(Asked::Nobody);
                steps.push(("owner finds out that it is fenced".to_owned(), next));
            }
        }
    }

    fn is_leased(&self) -> bool {
        !self.owner.is_fenced && self.owner.lease == Some(self.time)
    }

    /// True once another node may own the slot.
    fn is_retired(&self) -> bool {
        let phase = self.table.manifest.as_ref().map(|manifest| manifest.phase);
        phase.is_none_or(|phase| phase == ManifestPhase::Retired)
    }

    fn ask(&mut self, asked: Asked) {
        if let Some(read) = &mut self.read {
            read.asked = asked;
        }
    }

    /// `asks_next`: the rows that the next owner holds are seen, too.
    fn finish_read(&mut self, held: &BTreeSet<u64>, asks_next: bool) {
        let Some(read) = self.read.take() else { return };
        let seen =
            |sequence: &u64| held.contains(sequence) || self.points.flushed.contains(sequence);
        if let Some(missing) = read.must_see.iter().find(|sequence| !seen(sequence)) {
            self.problem = Some(format!("record {missing} is acknowledged and not read"));
        }
        let is_stored = self.correction.is_some_and(|correction| correction.is_flushed);
        if read.must_see_correction && !is_stored && !asks_next {
            self.problem = Some("the correction is acknowledged and not read".to_owned());
        }
    }

    /// Steps of the correction: the recoverer owns the slot now, and its clock is behind the dead owner's clock.
    pub(super) fn correction_steps(&self, steps: &mut Steps) {
        if !self.limits.is_corrected {
            return;
        }
        match &self.correction {
            None if self.is_retired() => {
                let last = self.recovered.as_ref().and_then(|all| all.last().copied());
                let floor = last.filter(|_| !self.faults.ignores_floor);
                let mut next = self.clone();
                next.correction = Some(Correction {
                    time: floor.map_or(0, |floor| floor + 1),
                    is_flushed: false,
                });
                steps.push(("the recoverer accepts a correction".to_owned(), next));
            }
            Some(Correction { time, is_flushed: false }) => {
                let mut next = self.clone();
                next.correction = Some(Correction { time: *time, is_flushed: true });
                if next.points.cell.is_none_or(|(_, stored)| stored <= *time) {
                    next.points.cell = Some((CORRECTED, *time));
                }
                steps.push(("the recoverer flushes the correction".to_owned(), next));
            }
            _ => {}
        }
    }
}
