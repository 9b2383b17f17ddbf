//! Reads by a third node, and a correction in the recoverer's own log.

use std::collections::BTreeSet;

use super::world::{Steps, World, name};
use crate::{ChangeOutcome, ManifestChange, ManifestPhase};

/// A read by the third node, which is neither owner nor recoverer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    /// Records that were acknowledged when the read began: the read must see them.
    must_see: BTreeSet<u64>,
    /// True if a recoverer had read the owner's log before.
    was_recovered: bool,
    asked: Asked,
}

/// State of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// Looks for the owner in the manifest.
    Nobody,
    /// Asked the owner: its held rows, and its pending proof.
    Owner(BTreeSet<u64>, Option<ManifestChange>),
    /// Waits until the owner's rows are stored.
    Settlement,
}

/// Another value of the same cell, which the recoverer accepts in its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Correction {
    time: u64,
    pub(super) is_flushed: bool,
}

/// The value of the correction.
pub(super) const CORRECTED: u64 = 100;

impl Read {
    /// True while the owner proves itself by a change of its manifest.
    pub(super) const fn is_proving(&self) -> bool {
        matches!(self.asked, Asked::Owner(_, Some(_)))
    }
}

impl World {
    /// Steps of the read: it finds the manifest, asks the owner or waits for its recovery, then reads the table of
    /// points.
    pub(super) fn read_steps(&self, steps: &mut Steps) {
        let Some(read) = &self.read else {
            if self.limits.reads > 0 && !self.acknowledged.is_empty() {
                let mut next = self.clone();
                next.limits.reads -= 1;
                let must_see = self.acknowledged.clone();
                let was_recovered = self.recovered.is_some();
                next.read = Some(Read { must_see, was_recovered, asked: Asked::Nobody });
                steps.push(("a read begins".to_owned(), next));
            }
            return;
        };
        match &read.asked {
            Asked::Nobody => {
                let mut next = self.clone();
                let is_open = self.is_open();
                if !is_open || self.owner.is_fenced || self.owner.work.is_some() {
                    next.ask(Asked::Settlement);
                    steps.push(("reader waits for the owner's rows".to_owned(), next));
                }
                let mut next = self.clone();
                if !self.owner.is_fenced && self.owner.work.is_none() {
                    let proof = self.owner.log.confirmation();
                    let proof = Some(proof).filter(|_| !self.faults.skips_proof);
                    next.ask(Asked::Owner(self.owner.memtable.clone(), proof));
                    steps.push(("reader asks the owner, which takes a snapshot".to_owned(), next));
                }
            }
            Asked::Owner(held, None) => {
                let mut next = self.clone();
                next.finish_read(held);
                steps.push(("reader reads the points".to_owned(), next));
            }
            Asked::Owner(held, Some(proof)) => {
                let request = proof.request();
                for (how, mut next, reply) in self.sent(&request) {
                    let mut proof = proof.clone();
                    match proof.reply(&reply) {
                        None => next.ask(Asked::Owner(held.clone(), Some(proof))),
                        Some(ChangeOutcome::Made) => {
                            next.owner.log.changed(proof.manifest().clone());
                            next.ask(Asked::Owner(held.clone(), None));
                        }
                        Some(ChangeOutcome::Refused) => {
                            next.owner.is_fenced = true;
                            next.ask(Asked::Settlement);
                        }
                    }
                    steps.push((format!("owner proves: {}{how}", name(&request)), next));
                }
            }
            Asked::Settlement => {
                let phase = self.table.manifest.as_ref().map(|manifest| manifest.phase);
                let is_settled = match phase {
                    None | Some(ManifestPhase::Retired) => true,
                    Some(ManifestPhase::Recovering) => self.faults.settles_early,
                    Some(ManifestPhase::Open | ManifestPhase::Joining) => false,
                };
                if is_settled {
                    let mut next = self.clone();
                    next.finish_read(&BTreeSet::new());
                    steps.push(("reader reads the points after the recovery".to_owned(), next));
                }
            }
        }
    }

    fn ask(&mut self, asked: Asked) {
        if let Some(read) = &mut self.read {
            read.asked = asked;
        }
    }

    fn finish_read(&mut self, held: &BTreeSet<u64>) {
        let Some(read) = self.read.take() else { return };
        let seen =
            |sequence: &u64| held.contains(sequence) || self.points.flushed.contains(sequence);
        if let Some(missing) = read.must_see.iter().find(|sequence| !seen(sequence)) {
            self.problem = Some(format!("record {missing} is acknowledged and not read"));
        }
        if read.was_recovered && matches!(read.asked, Asked::Owner(..)) {
            self.problem = Some("a node that is fenced has answered for its rows".to_owned());
        }
    }

    /// Steps of the correction: the recoverer's clock is behind the dead owner's clock.
    pub(super) fn correction_steps(&self, steps: &mut Steps) {
        if !self.limits.is_corrected {
            return;
        }
        match &self.correction {
            None if self.recovered.is_some() => {
                let last = self.recovered.as_ref().and_then(|all| all.last().copied());
                let floor = last.filter(|_| !self.faults.ignores_floor).unwrap_or_default();
                let mut next = self.clone();
                next.correction = Some(Correction { time: floor + 1, is_flushed: false });
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
