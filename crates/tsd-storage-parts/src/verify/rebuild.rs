//! Rebuilds a lost manifest from the footers of the part files, if they are unambiguous.
//!
//! A footer has the spans and flushes of a file, but not which of its sections a later merge has replaced. That
//! follows if the outputs of merges are known. A merge takes the newest sections of a span, up to some point. So
//! a section was replaced if a later file of a single span includes its flushes.
//!
//! For a file of several spans, the flushes of each span are unknown, so no manifest is made. Otherwise, a
//! replaced section next to its replacement would bring back old values and deleted points.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use tsd_files::{DiskDir, DiskSpace, StoreDir};
use tsd_storage::{StorageError, Table};

use crate::{
    error::PartError,
    file_names::{is_quarantine_name, part_name, part_number},
    layout::PartLayout,
    manifest::{FileRecord, ManifestEdit, ManifestFile, SectionRecord, read_copies},
    part::Part,
    resources::PartResources,
};

/// A section of a part file.
#[derive(Clone, Copy, Debug)]
struct FoundSection {
    file: u64,
    index: u32,
    sequences: (u64, u64),
    /// True if the file has other spans, too.
    is_shared: bool,
}

/// Rebuilds the manifest of a table if all of its copies are damaged, in the directory of a store that no process
/// has open. Renames the damaged files. Does nothing if a copy can be read.
///
/// # Errors
///
/// [`StorageError::Damaged`] says why the files are ambiguous; nothing was changed then. Or an error of the disk.
pub fn rebuild_manifest(path: &Path, table: &Table) -> Result<(), StorageError> {
    let path = path.join(table.file_name());
    let opened = DiskDir::unlocked(&path);
    let dir: Arc<dyn StoreDir> = Arc::new(
        opened.map_err(|source| StorageError::io(format!("opening {}", path.display()), source))?,
    );
    rebuild_in(&dir)
}

pub(crate) fn rebuild_in(dir: &Arc<dyn StoreDir>) -> Result<(), StorageError> {
    match read_copies(&**dir)? {
        Some(read) if read.newest.is_none() => {}
        _ => return Ok(()),
    }
    let (layout, edit) = found_state(dir)?;
    let Some(layout) = layout else {
        return Err(doubt("there are no part files"));
    };
    ManifestFile::replace_damaged(Arc::clone(dir), layout, &edit)?;
    let (files, sections) = (edit.files.len(), edit.sections.len());
    tracing::warn!(dir = %dir.path().display(), files, sections, "the manifest was made from the part files");
    Ok(())
}

fn doubt(why: &str) -> StorageError {
    let text =
        format!("the manifest cannot be made from the part files: {why}; restore it from a copy");
    StorageError::Damaged(text.into())
}

/// The layout and the live sections, as far as the footers tell.
fn found_state(
    dir: &Arc<dyn StoreDir>,
) -> Result<(Option<PartLayout>, ManifestEdit), StorageError> {
    let space = Arc::new(DiskSpace::new(dir.path(), 0));
    let resources = Arc::new(PartResources::new(0, 1, space));
    let names = dir.list().map_err(PartError::io("list", dir.path()))?;
    if let Some(name) = names.iter().find(|name| is_quarantine_name(name)) {
        return Err(doubt(&format!(
            "of {name}, which is in quarantine, it is not known what was lost"
        )));
    }
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| part_number(name)).collect();
    numbers.sort_unstable();
    let mut layout = None;
    let mut files: BTreeMap<u64, FileRecord> = BTreeMap::new();
    let mut spans: BTreeMap<u32, Vec<FoundSection>> = BTreeMap::new();
    for file in numbers {
        let part = match Part::open(dir, &resources, file, None) {
            Ok(part) if part.is_footer_damaged() => {
                let name = part_name(file);
                return Err(doubt(&format!("{name} was not completed, or its footer is damaged")));
            }
            Ok(part) => part,
            Err(error) if error.is_damage() => {
                let name = part_name(file);
                return Err(doubt(&format!("{name} was not completed, or is damaged ({error})")));
            }
            Err(error) => return Err(error.into()),
        };
        if *layout.get_or_insert(part.layout()) != part.layout() {
            return Err(doubt(&format!("{} has another layout", part_name(file))));
        }
        let infos = part.sections();
        let (sequences, is_shared) = (part.sequences(), infos.len() > 1);
        for (index, info) in (0..).zip(&infos) {
            let found = FoundSection { file, index, sequences, is_shared };
            spans.entry(info.span).or_default().push(found);
        }
        files.insert(file, part.record());
    }
    let mut edit = ManifestEdit::default();
    for (span, mut found) in spans {
        for section in live_sections(&mut found)? {
            edit.next_sequence = edit.next_sequence.max(section.sequences.1 + 1);
            edit.sections.push(SectionRecord {
                span,
                file: section.file,
                index: section.index,
                sequences: section.sequences,
                // Unknown, so the section is merged once more.
                compacted_before: None,
            });
        }
    }
    let live: BTreeSet<u64> = edit.sections.iter().map(|section| section.file).collect();
    files.retain(|number, _| live.contains(number));
    edit.files = files.into_values().collect();
    Ok((layout, edit))
}

/// The sections of a span that no other section has replaced.
fn live_sections(found: &mut [FoundSection]) -> Result<Vec<FoundSection>, StorageError> {
    // Newest file first, because only a later file can replace a section.
    found.sort_unstable_by_key(|section| std::cmp::Reverse(section.file));
    let mut live: Vec<FoundSection> = Vec::new();
    for section in found.iter() {
        let (first, last) = section.sequences;
        let mut is_replaced = false;
        for later in &live {
            let (from, to) = later.sequences;
            if last < from || to < first {
                continue;
            }
            // Replaced by a merge, or by a copy of the damaged file. The merge of a single section has the same
            // flushes.
            let is_within = from <= first && last <= to;
            if !is_within || later.is_shared {
                let (a, b) = (part_name(section.file), part_name(later.file));
                return Err(doubt(&format!(
                    "{a} (flushes {first} to {last}) and {b} (flushes {from} to {to}) have rows of one span, and \
                     it is not known whether the second one has replaced those of the first"
                )));
            }
            is_replaced = true;
        }
        if !is_replaced {
            live.push(*section);
        }
    }
    Ok(live)
}
