//! The part that a flush writes, and the space for it.

use tsd_storage::SpacePermit;

use super::{PartStore, part_name};
use crate::{error::PartError, flush_writer::FlushOutput, writer::PartWriter};

/// Bytes of the first step; the space is promised to the flush in steps.
const MIN_STEP: u64 = 64 << 10;
/// Bytes of the largest step.
const MAX_STEP: u64 = 4 << 20;

/// The part of a flush. Its size is not known before: space is asked for as much again as is written.
pub(super) struct PartOutput<'a> {
    store: &'a PartStore,
    number: u64,
    sequence: u64,
    frees_space: bool,
    /// Size of the part up to which there is space.
    covered: u64,
    /// The space of the last step.
    permit: Option<SpacePermit>,
}

impl<'a> PartOutput<'a> {
    /// The part `number` with the flush `sequence`; one that frees space may use a part of the reserve.
    pub(super) const fn new(
        store: &'a PartStore,
        (number, sequence): (u64, u64),
        frees_space: bool,
    ) -> Self {
        Self { store, number, sequence, frees_space, covered: 0, permit: None }
    }
}

impl FlushOutput for PartOutput<'_> {
    fn create(&mut self) -> Result<PartWriter, PartError> {
        let sequences = (self.sequence, self.sequence);
        PartWriter::create(&*self.store.dir, &part_name(self.number), self.store.layout, sequences)
    }

    fn reserve(&mut self, written: u64, next: u64) -> Result<(), PartError> {
        if written + next <= self.covered {
            return Ok(());
        }
        let step = written.clamp(MIN_STEP, MAX_STEP);
        // What was promised is written.
        self.permit = None;
        // The index of a section is written at its end.
        let index = written / 32;
        self.permit = Some(self.store.resources.promise(next + step + index, self.frees_space)?);
        self.covered = written + next + step;
        Ok(())
    }
}
