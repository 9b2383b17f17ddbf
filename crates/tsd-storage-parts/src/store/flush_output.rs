//! The part that a flush writes, and the space for it.

use tsd_storage::{SpacePermit, StoreDir};

use crate::{
    error::PartError, file_names::part_name, flush_writer::FlushOutput, layout::PartLayout,
    resources::PartResources, writer::PartWriter,
};

/// Bytes of the first step; the space is promised to the flush in steps.
const MIN_STEP: u64 = 64 << 10;
/// Bytes of the largest step.
const MAX_STEP: u64 = 4 << 20;

/// The part of a flush. Its size is not known before: space is asked for as much again as is written.
pub(super) struct PartOutput<'a> {
    pub(super) dir: &'a dyn StoreDir,
    pub(super) layout: PartLayout,
    pub(super) resources: &'a PartResources,
    pub(super) number: u64,
    pub(super) sequence: u64,
    /// It may use a part of the reserve.
    pub(super) frees_space: bool,
    /// Size of the part up to which there is space.
    pub(super) covered: u64,
    /// The space of the last step.
    pub(super) permit: Option<SpacePermit>,
}

impl FlushOutput for PartOutput<'_> {
    fn create(&mut self) -> Result<PartWriter, PartError> {
        let sequences = (self.sequence, self.sequence);
        PartWriter::create(self.dir, &part_name(self.number), self.layout, sequences)
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
        self.permit = Some(self.resources.promise(next + step + index, self.frees_space)?);
        self.covered = written + next + step;
        Ok(())
    }
}
