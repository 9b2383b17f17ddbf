//! What verifications look at.

use std::sync::Arc;

use tsd_storage::StoreDir;

use super::{PartStore, lock::lock};
use crate::{
    error::PartError,
    manifest::{ManifestCopies, ManifestState, SectionRecord},
    part::Part,
    resources::PartResources,
};

impl PartStore {
    pub(crate) const fn dir(&self) -> &Arc<dyn StoreDir> {
        &self.dir
    }

    pub(crate) const fn shared_resources(&self) -> &Arc<PartResources> {
        &self.resources
    }

    /// What the manifest says now.
    pub(crate) fn manifest_state(&self) -> ManifestState {
        lock(&self.manifest).state().clone()
    }

    /// What the files of the manifest say, with the number that follows their last record; `None` while they
    /// are to be written anew.
    pub(crate) fn read_manifest(&self) -> Result<Option<(ManifestCopies, u64)>, PartError> {
        // No edit is written meanwhile.
        let manifest = lock(&self.manifest);
        Ok(manifest.read_again()?.map(|read| (read, manifest.next_number())))
    }

    /// Writes the manifest and its copy anew.
    pub(crate) fn write_manifest(&self) -> Result<(), PartError> {
        lock(&self.manifest).write_anew()
    }

    /// An open part that has live sections.
    pub(crate) fn live_part(&self, number: u64) -> Option<Arc<Part>> {
        lock(&self.state).parts.get(&number).cloned()
    }

    /// True if the section is one of the table still.
    pub(crate) fn is_live(&self, section: &SectionRecord) -> bool {
        let manifest = lock(&self.manifest);
        manifest.state().sections.get(&(section.file, section.index)) == Some(section)
    }
}
