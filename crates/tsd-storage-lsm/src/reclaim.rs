//! Frees space on a full disk by removing deleted entries from single files.
//!
//! LSM compaction needs space for its output before it removes its inputs, and it begins only when
//! a level is too large. On a full disk, deletes alone would free nothing. Reclaim compares each
//! file with the whole tree. A file without visible entries is removed, which needs no space. Any
//! other file is replaced by a copy of its visible entries, from the reserve if necessary. Newer
//! entries in other files hide the dropped entries, so reads do not change.

use std::{collections::BTreeSet, iter::Peekable, ops::Bound};

use lsm_tree::{AbstractTree, AnyTree, Guard, SeqNo, Table, UserKey};
use tsd_files::SpacePermit;
use tsd_storage::StorageError;

use crate::{
    file_format::file_writer,
    manifest::TreeFile,
    repair::{Replacement, is_damage},
    table::TableStore,
};

/// Available space below which deleted entries are removed without a compaction.
const LOW_SPACE_BYTES: u64 = 16 << 20;
/// Hidden bytes of a file from which copying the rest is worthwhile.
const MIN_HIDDEN_BYTES: u64 = 1 << 20;
/// Least hidden share of a file: one in this many bytes.
const MIN_HIDDEN_PART: u64 = 4;
/// Most bytes of copies between two replacements of the tree.
const MAX_COPIED_BYTES: u64 = 64 << 20;
/// Size of a file beyond its entries.
pub(crate) const FILE_OVERHEAD: u64 = 64 << 10;

/// Bytes of keys and values in a file.
#[derive(Clone, Copy, Debug, Default)]
struct FileBytes {
    visible: u64,
    hidden: u64,
}

/// Keys and values that reads of the tree see.
type VisiblePairs = Box<dyn Iterator<Item = lsm_tree::Result<(UserKey, UserKey)>>>;

/// Compares the entries of one file with the entries that reads of the tree see.
struct VisibleEntries<'a> {
    entries: Box<dyn Iterator<Item = lsm_tree::Result<lsm_tree::InternalValue>> + 'a>,
    visible: Peekable<VisiblePairs>,
    /// Keeps the files of the tree.
    _tree: AnyTree,
    /// True if no older file has keys of the range, so that deletes hide nothing.
    is_oldest: bool,
}

/// True if deleted entries should be removed.
pub(crate) fn is_space_low(table: &TableStore) -> bool {
    table.space().available_bytes().is_ok_and(|available| available < LOW_SPACE_BYTES)
}

/// Removes hidden entries from files; returns true if there may be more to remove. Called by the
/// thread that compacts.
pub(crate) fn reclaim(table: &TableStore) -> Result<bool, StorageError> {
    let compacting = table.compacting.lock();
    let tree = table.tree();
    let mut replacements = Vec::new();
    let collected = collect(table, &tree, &mut replacements);
    let freed: u64 = replacements.iter().map(|(_, freed)| freed).sum();
    let count = replacements.len();
    let mut result = collected.map(|()| count > 0);
    if count > 0 {
        let replacements = replacements.into_iter().map(|(replacement, _)| replacement).collect();
        let writer = table.writer();
        if let Err(error) = table.replace(&writer, &tree, replacements) {
            result = Err(error);
        } else {
            tracing::info!(table = %table.name, files = count, bytes = freed, "deleted entries were removed, as the disk is full");
        }
    }
    if table.has_partial_outputs() {
        table.remove_partial_outputs(&table.writer(), &compacting);
    }
    result
}

fn collect(
    table: &TableStore,
    tree: &AnyTree,
    replacements: &mut Vec<(Replacement, u64)>,
) -> Result<(), StorageError> {
    let version = tree.current_version();
    let files: Vec<&Table> = version.iter_tables().collect();
    let mut reclaimed = table.reclaimed.lock();
    reclaimed.0.retain(|id, _| files.iter().any(|file| file.id() == *id));
    let mut copied = 0;
    // Permits are held until the tree is replaced: the inputs still need their space.
    let mut permits: Vec<SpacePermit> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        if table.is_stopping() || copied >= MAX_COPIED_BYTES {
            break;
        }
        let overlapping = |other: &&&Table| {
            let (a, b) = (&file.metadata.key_range, &other.metadata.key_range);
            a.min() <= b.max() && b.min() <= a.max()
        };
        let deletes: BTreeSet<u64> = files
            .iter()
            .filter(overlapping)
            .filter(|other| other.metadata.tombstone_count > 0)
            .map(|other| other.id())
            .collect();
        let known = reclaimed.0.get(&file.id());
        // Entries that a damaged file hides are unknown.
        let is_readable =
            || !files.iter().filter(overlapping).any(|other| table.is_suspect(other.id()));
        if deletes.is_empty()
            || !is_readable()
            || known.is_some_and(|known| deletes.is_subset(known))
        {
            continue;
        }
        // Files are listed from new to old.
        let is_oldest = !files.iter().skip(at + 1).any(|other| overlapping(&other));
        let bytes = count(table, tree, file, is_oldest)?;
        let worth = MIN_HIDDEN_BYTES.min((bytes.visible + bytes.hidden) / MIN_HIDDEN_PART);
        if bytes.hidden == 0 || bytes.hidden < worth {
            reclaimed.0.insert(file.id(), deletes);
            continue;
        }
        let size = file.metadata.file_size;
        let mut needed = 0;
        if bytes.visible > 0 {
            let part = bytes.visible as f64 / (bytes.visible + bytes.hidden) as f64;
            needed = (size as f64 * part) as u64 + FILE_OVERHEAD;
            let space = table.space();
            let permit = space.promise(needed).or_else(|_| space.promise_from_reserve(needed));
            let Ok(permit) = permit else { continue };
            permits.push(permit);
        }
        let by = if bytes.visible > 0 { copy_visible(table, tree, file, is_oldest)? } else { None };
        copied += needed;
        let freed = size.saturating_sub(needed);
        replacements.push((Replacement { id: file.id(), record: None, by }, freed));
    }
    Ok(())
}

fn count(
    table: &TableStore,
    tree: &AnyTree,
    file: &Table,
    is_oldest: bool,
) -> Result<FileBytes, StorageError> {
    let mut bytes = FileBytes::default();
    for entry in VisibleEntries::of(tree, file, is_oldest) {
        let (entry, is_visible) = entry.map_err(|error| failed(table, tree, file, error))?;
        let length = (entry.key.user_key.len() + entry.value.len()) as u64;
        *(if is_visible { &mut bytes.visible } else { &mut bytes.hidden }) += length;
    }
    Ok(bytes)
}

/// Copies the visible entries of a file to a new one; returns `None` for a file without visible
/// entries.
fn copy_visible(
    table: &TableStore,
    tree: &AnyTree,
    file: &Table,
    is_oldest: bool,
) -> Result<Option<TreeFile>, StorageError> {
    let failed = |error| failed(table, tree, file, error);
    let id = tree.get_next_table_id();
    // Applies until the new file is part of the tree.
    table.note_partial_outputs();
    let mut writer = file_writer(table.dir().file_path(id), id).map_err(failed)?;
    let mut range: Option<(Vec<u8>, Vec<u8>)> = None;
    for entry in VisibleEntries::of(tree, file, is_oldest) {
        let (mut entry, is_visible) = entry.map_err(failed)?;
        if !is_visible {
            continue;
        }
        let key = entry.key.user_key.to_vec();
        match &mut range {
            Some((_, last)) => *last = key,
            None => range = Some((key.clone(), key)),
        }
        // The tree adds this number to the numbers in the file.
        entry.key.seqno = entry.key.seqno.saturating_sub(file.global_seqno());
        writer.write(entry).map_err(failed)?;
    }
    let written = writer.finish().map_err(failed)?;
    Ok(written.map(|(_, checksum)| TreeFile {
        id,
        checksum: checksum.into_u128(),
        seqno: file.global_seqno(),
        range,
    }))
}

/// The error of a read or write; possibly damaged files are verified next.
fn failed(
    table: &TableStore,
    tree: &AnyTree,
    file: &Table,
    error: lsm_tree::Error,
) -> StorageError {
    if is_damage(&error) {
        let range = &file.metadata.key_range;
        let version = tree.current_version();
        let read = version.iter_tables().filter(|other| {
            let other = &other.metadata.key_range;
            range.min() <= other.max() && other.min() <= range.max()
        });
        table.suspect_inputs(read.map(Table::id));
    }
    table.failed("removing deleted entries")(error)
}

impl<'a> VisibleEntries<'a> {
    fn of(tree: &AnyTree, file: &'a Table, is_oldest: bool) -> Self {
        let range = &file.metadata.key_range;
        let bounds = (Bound::Included(range.min().clone()), Bound::Included(range.max().clone()));
        let visible = tree.range::<UserKey, _>(bounds, SeqNo::MAX, None).map(Guard::into_inner);
        let visible: Box<dyn Iterator<Item = _>> = Box::new(visible);
        Self {
            entries: Box::new(file.iter()),
            visible: visible.peekable(),
            _tree: tree.clone(),
            is_oldest,
        }
    }
}

impl Iterator for VisibleEntries<'_> {
    /// An entry, and whether it must be kept.
    type Item = lsm_tree::Result<(lsm_tree::InternalValue, bool)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.entries.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        if entry.is_tombstone() {
            return Some(Ok((entry, !self.is_oldest)));
        }
        loop {
            match self.visible.peek() {
                Some(Ok((key, _))) if *key < entry.key.user_key => {
                    self.visible.next();
                }
                Some(Ok((key, value))) => {
                    // Of entries with equal values, either may be visible.
                    let is_visible = *key == entry.key.user_key && *value == entry.value;
                    return Some(Ok((entry, is_visible)));
                }
                Some(Err(_)) => return self.visible.next()?.err().map(Err),
                None => return Some(Ok((entry, false))),
            }
        }
    }
}
