//! The output part of a flush, and its disk space.

use tsd_files::{SpacePermit, StoreDir};

use crate::{
    error::PartError, file_names::part_name, flush_writer::FlushOutput, layout::PartLayout,
    resources::PartResources, writer::PartWriter,
};

/// Smallest step in which disk space is reserved, bytes.
const MIN_STEP: u64 = 64 << 10;
/// Largest step in which disk space is reserved, bytes.
const MAX_STEP: u64 = 4 << 20;

/// The output part of a flush. Its final size is unknown, so each step reserves about as much space as is already
/// written.
pub(super) struct PartOutput<'a> {
    pub(super) dir: &'a dyn StoreDir,
    pub(super) layout: PartLayout,
    pub(super) resources: &'a PartResources,
    pub(super) number: u64,
    pub(super) sequence: u64,
    /// True if the part may use a fraction of the reserve.
    pub(super) frees_space: bool,
    /// Size of the part up to which space is reserved.
    pub(super) covered: u64,
    /// The space that the last step reserved.
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
        // The space of the last step is written.
        self.permit = None;
        // A section writes its index at its end.
        let index = written / 32;
        self.permit = Some(self.resources.promise(next + step + index, self.frees_space)?);
        self.covered = written + next + step;
        Ok(())
    }
}
