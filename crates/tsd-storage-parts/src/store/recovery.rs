//! Opens a store: listed files are opened or quarantined, and all other files are removed.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, OnceLock},
};

use tsd_files::StoreDir;

use super::{
    PartConfig, PartStore, StoreState, StoreStats, compaction_limit::CompactionLimit,
    dropped::DroppedTotals, late_spans::LateSpans, merge_input::MeasuredMerges,
    quarantine::DamagedFile, table_retention::TableRetention,
};
use crate::{
    damage::FoundDamage,
    error::PartError,
    file_names::{ASIDE_SUFFIX, aside_name, number_of, part_name, part_number},
    manifest::{FileRecord, ManifestFile, SectionRecord},
    metrics::{PartMetrics, describe_metrics},
    part::Part,
    resources::PartResources,
    snapshot::Snapshot,
};

impl PartStore {
    /// Opens the store in a directory, or creates it. The directory, or a parent of it, must be locked.
    ///
    /// Checks the size and the footer of every part. Blocks are checked when they are read. A missing or damaged
    /// part is quarantined and does not prevent the start.
    ///
    /// # Errors
    ///
    /// [`PartError::Damaged`] if the manifest cannot be read, [`PartError::Unsupported`] for files of
    /// another version or layout, or an error of the disk.
    pub fn open(dir: Arc<dyn StoreDir>, config: PartConfig) -> Result<Self, PartError> {
        describe_metrics();
        let PartConfig { table, layout, resources, clock, compacts_rows } = config;
        let manifest = ManifestFile::open(Arc::clone(&dir), layout)?;
        let mut parts = BTreeMap::new();
        let mut damaged = Vec::new();
        for file in manifest.state().files.values() {
            let sections = manifest.state().sections_of(file.number);
            match open_listed(&dir, &resources, file, &sections) {
                Ok(part) => {
                    parts.insert(file.number, Arc::new(part));
                }
                Err(error) => damaged.push(DamagedFile::whole(*file, reason(error)?)),
            }
        }
        let found = Arc::new(FoundDamage::default());
        let snapshot = Snapshot::empty(layout, Arc::clone(&resources), Arc::clone(&found));
        let snapshot = Arc::new(snapshot.renewed(&table, manifest.state(), &parts));
        let stats = StoreStats::default();
        let state = StoreState { snapshot, parts, next_file: 1, in_doubt: Vec::new(), stats };
        let store = Self {
            dir,
            metrics: PartMetrics::new(table.as_str()),
            compaction: CompactionLimit::new(table.clone(), compacts_rows, clock),
            table,
            layout,
            resources,
            clock,
            late_spans: LateSpans::default(),
            dropped: DroppedTotals::default(),
            retention: TableRetention::default(),
            signal: OnceLock::new(),
            flushing: Mutex::new(()),
            merging: Mutex::new(MeasuredMerges::default()),
            accepting: Mutex::new(()),
            losses: Mutex::default(),
            quarantined_files: Mutex::default(),
            missing: Mutex::default(),
            found,
            manifest: Mutex::new(manifest),
            state: Mutex::new(state),
        };
        if !damaged.is_empty() {
            for damaged in &mut damaged {
                // A missing file has no bytes in quarantine.
                if damaged.what == MISSING {
                    damaged.file.bytes = 0;
                }
            }
            store.quarantine_files(&damaged)?;
        }
        store.clean_up()?;
        Ok(store)
    }

    /// Removes the files that the manifest does not list.
    fn clean_up(&self) -> Result<(), PartError> {
        let names = self.dir.list().map_err(PartError::io("list", self.dir.path()))?;
        let manifest = self.manifest.lock();
        // Until the manifest is durable, the disk may have an older one, which needs these files.
        let is_durable = manifest.is_durable();
        let state = manifest.state();
        let mut last = state.files.keys().chain(state.quarantined.keys()).copied().max();
        for name in names {
            last = last.max(part_number(&name)).max(number_of(&name, ASIDE_SUFFIX));
            // The next start retries failed removals and renames.
            if let Some(number) = part_number(&name) {
                let is_live = state.files.contains_key(&number);
                if state.quarantined.contains_key(&number) && !is_live {
                    let _ = self.dir.rename(&part_name(number), &aside_name(number));
                } else if is_durable && !is_live {
                    let _ = self.dir.remove(&name);
                }
            } else if is_durable
                && number_of(&name, ASIDE_SUFFIX)
                    .is_some_and(|number| !state.quarantined.contains_key(&number))
            {
                // The loss of the file was accepted.
                let _ = self.dir.remove(&name);
            }
        }
        self.state.lock().next_file = last.unwrap_or_default() + 1;
        Ok(())
    }
}

/// Recorded reason for a missing file.
const MISSING: &str = "the file is missing";

/// The reason for quarantining a part; the error if quarantine would not help.
fn reason(error: PartError) -> Result<String, PartError> {
    match error {
        PartError::Damaged { offset, what, .. } => Ok(format!("{what} at byte {offset}")),
        PartError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Ok(MISSING.to_owned())
        }
        error => Err(error),
    }
}

/// Opens a part and compares it with the manifest.
pub(super) fn open_listed(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
    file: &FileRecord,
    sections: &[SectionRecord],
) -> Result<Part, PartError> {
    let part = Part::open(dir, resources, file.number, Some(file))?;
    let infos = part.sections();
    let is_there = |section: &SectionRecord| {
        infos.get(section.index as usize).is_some_and(|info| info.span == section.span)
    };
    if sections.iter().all(is_there) { Ok(part) } else { Err(part.differs("sections")) }
}
