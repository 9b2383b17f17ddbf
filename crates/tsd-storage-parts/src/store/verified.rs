//! Access of verifications to the files and the state of a store.

use std::sync::Arc;

use tsd_files::StoreDir;

use super::PartStore;
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

    /// The current state of the manifest.
    pub(crate) fn manifest_state(&self) -> ManifestState {
        self.manifest.lock().state().clone()
    }

    /// The contents of the manifest files and the number after their last record; `None` while the files must be
    /// rewritten.
    pub(crate) fn read_manifest(&self) -> Result<Option<(ManifestCopies, u64)>, PartError> {
        // The lock prevents edits meanwhile.
        let manifest = self.manifest.lock();
        Ok(manifest.read_again()?.map(|read| (read, manifest.next_number())))
    }

    /// Rewrites the manifest and its copy.
    pub(crate) fn write_manifest(&self) -> Result<(), PartError> {
        self.manifest.lock().write_anew()
    }

    /// An open part with live sections.
    pub(crate) fn live_part(&self, number: u64) -> Option<Arc<Part>> {
        self.state.lock().parts.get(&number).cloned()
    }

    /// True if the section is still live.
    pub(crate) fn is_live(&self, section: &SectionRecord) -> bool {
        let manifest = self.manifest.lock();
        manifest.state().sections.get(&(section.file, section.index)) == Some(section)
    }
}
