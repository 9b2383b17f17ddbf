//! Detects files that were removed while the store is open.
//!
//! Without its manifest, a flush would be lost, so writes fail until the manifest is back. A missing part can
//! still be read through an open descriptor, so its absence is reported as a problem before the next start.

use std::{collections::HashSet, time::Duration};

use tsd_storage::{HealthImpact, HealthProblem, StorageError, StoreComponent};

use super::PartStore;
use crate::file_names::{part_name, shown_name};

/// Resolution of the file system's clock. A change in the same tick as the last listing is not seen.
const TICK: Duration = Duration::from_secs(1);

impl PartStore {
    /// Fails if the directory or its manifest was removed or replaced. Notes missing parts.
    pub(crate) fn check_files(&self) -> Result<(), StorageError> {
        tsd_files::check_place(&*self.dir)?;
        // If an edit is being written, the next call checks the manifest.
        if let Some(manifest) = self.manifest.try_lock() {
            manifest.check_files()?;
        }
        self.find_missing_parts();
        Ok(())
    }

    /// Lists the directory if it has changed since the last listing.
    fn find_missing_parts(&self) {
        let Some(changed_at) = self.dir.changed_at() else { return };
        let mut missing = self.missing.lock();
        if missing.listed == Some(changed_at) {
            return;
        }
        let live: Vec<u64> = self.state.lock().parts.keys().copied().collect();
        let Ok(names) = self.dir.list() else { return };
        let names: HashSet<String> = names.into_iter().collect();
        let is_missing = |number: &u64| {
            let name = part_name(*number);
            // A merge may have removed the part after it was listed as live.
            !names.contains(&name)
                && matches!(self.dir.contains(&name), Ok(false))
                && self.state.lock().parts.contains_key(number)
        };
        let found: Vec<u64> = live.into_iter().filter(is_missing).collect();
        if let Some(number) = found.iter().find(|number| !missing.files.contains(number)) {
            let (file, files) = (self.dir.path().join(part_name(*number)), found.len());
            tracing::error!(file = %file.display(), files, "store files were removed while the store is open");
        }
        missing.files = found;
        missing.listed = changed_at.elapsed().is_ok_and(|age| age > TICK).then_some(changed_at);
    }

    /// Problems of missing parts that are not in quarantine yet.
    pub(super) fn missing_parts(&self) -> Vec<HealthProblem> {
        let files = self.missing.lock().files.clone();
        if files.is_empty() {
            return Vec::new();
        }
        let problem = |number: &u64| {
            let reason = format!(
                "store file {} was removed while the store is open; reads of it fail once it is closed: put it back",
                shown_name(&self.table, *number)
            );
            HealthProblem::new(StoreComponent::Data, HealthImpact::SomeReadsFail, reason)
        };
        let is_live = |number: &&u64| self.state.lock().parts.contains_key(*number);
        let manifest = self.manifest.lock();
        let quarantined = &manifest.state().quarantined;
        files
            .iter()
            .filter(|number| !quarantined.contains_key(number))
            .filter(is_live)
            .map(problem)
            .collect()
    }
}
