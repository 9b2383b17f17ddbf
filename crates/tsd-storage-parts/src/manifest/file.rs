//! Reads and writes the files of a manifest: appends edits and rewrites both files from time to time.

use std::{io, ops::RangeInclusive, sync::Arc};

use tsd_files::{ReadVia, Reread, StoreDir, StoreFile, check_file, read_repeatedly, removed_file};
use tsd_storage::{StorageError, UnknownVersion};

use super::{
    ManifestEdit, ManifestState,
    record::{self, HEAD, VERSION_BLOCKS},
};
use crate::{
    error::{Malformed, PartError},
    layout::PartLayout,
};

/// Name of the file.
pub(crate) const NAME: &str = "manifest";
/// A second file with the same records. A flipped bit in one file, even in its last record, loses no parts.
pub(crate) const COPY_NAME: &str = "manifest.copy";
/// Suffix of a file that is not durable yet.
const NEW_SUFFIX: &str = ".new";
/// Suffix of a file that was replaced because it could not be read.
const DAMAGED_SUFFIX: &str = ".damaged";
const MAGIC: &[u8; 8] = b"SLTMANI\x02";
/// Readable versions (the last byte of the magic).
const VERSIONS: RangeInclusive<u8> = 1..=VERSION_BLOCKS;
/// Minimum size of the edits before a rewrite.
const EDIT_BYTES: u64 = 64 << 10;

/// The manifest of an open store.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    dir: Arc<dyn StoreDir>,
    layout: PartLayout,
    state: ManifestState,
    /// Number of the next record.
    number: u64,
    /// `None` if the files must be rewritten: after an error, it is unknown which bytes are durable.
    files: Option<OpenFiles>,
    written_bytes: u64,
}

/// The file and its copy.
#[derive(Debug)]
struct OpenFiles {
    files: [Box<dyn StoreFile>; 2],
    /// Length of each file, and length of the state in it.
    len: u64,
    state_len: u64,
}

/// The decoded contents of a manifest.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    layout: PartLayout,
    state: ManifestState,
    next_number: u64,
}

/// The layout of the store in a directory; `None` without a store.
pub(crate) fn stored_layout(dir: &dyn StoreDir) -> Result<Option<PartLayout>, PartError> {
    Ok(read_newest(dir)?.map(|contents| contents.layout))
}

/// Reads the manifest, or its copy if the copy has more records; `None` in a directory without parts. Fails if
/// neither can be read.
fn read_newest(dir: &dyn StoreDir) -> Result<Option<Contents>, PartError> {
    let names = dir.list().map_err(PartError::io("list", dir.path()))?;
    let read = [NAME, COPY_NAME]
        .map(|name| names.iter().any(|n| n == name).then(|| Contents::read_file(dir, name)));
    match read {
        [None, None] => {
            if names.iter().any(|name| crate::file_names::part_number(name).is_some()) {
                let file = dir.path().join(NAME).display().to_string().into();
                let what = "it is missing; restore it from a copy";
                return Err(PartError::Damaged { file, offset: 0, what });
            }
            Ok(None)
        }
        [Some(Ok(first)), Some(Ok(second))] => {
            Ok(Some(if second.next_number > first.next_number { second } else { first }))
        }
        [Some(Ok(contents)), other] | [other, Some(Ok(contents))] => {
            if let Some(Err(error)) = other {
                let error = tsd_storage::error_chain(&error);
                tracing::error!(error, "a manifest is damaged; its copy is used");
            }
            Ok(Some(contents))
        }
        [Some(Err(error)), _] | [_, Some(Err(error))] => Err(error),
    }
}

/// A file of a manifest: its name, and the number after its last record or the error of reading it.
pub(crate) type ManifestCopy = (String, Result<u64, PartError>);

/// The contents of both files of a manifest, read without any change.
#[derive(Debug)]
pub(crate) struct ManifestCopies {
    /// Each file, readable or not.
    pub(crate) copies: Vec<ManifestCopy>,
    /// The newest state, if one file can be read.
    pub(crate) newest: Option<(PartLayout, ManifestState)>,
}

/// True if one of these files belongs to a manifest or is a part.
pub(crate) fn has_table(names: &[String]) -> bool {
    let is_manifest = |name: &str| name == NAME || name == COPY_NAME;
    names.iter().any(|name| is_manifest(name) || crate::file_names::part_number(name).is_some())
}

/// Reads both files of the manifest in a directory; `None` if the directory has neither a manifest nor parts.
pub(crate) fn read_copies(dir: &dyn StoreDir) -> Result<Option<ManifestCopies>, PartError> {
    let names = dir.list().map_err(PartError::io("list", dir.path()))?;
    if !has_table(&names) {
        return Ok(None);
    }
    let mut read = ManifestCopies { copies: Vec::new(), newest: None };
    let mut newest: Option<Contents> = None;
    for name in [NAME, COPY_NAME] {
        let path = dir.path().join(name).display().to_string();
        let contents = if names.iter().any(|n| n == name) {
            Contents::read_file(dir, name)
        } else {
            let what = "it is missing";
            Err(PartError::Damaged { file: path.as_str().into(), offset: 0, what })
        };
        match contents {
            Ok(contents) => {
                read.copies.push((path, Ok(contents.next_number)));
                if newest.as_ref().is_none_or(|newest| newest.next_number < contents.next_number) {
                    newest = Some(contents);
                }
            }
            // An unknown version in one file is a flipped byte; in both files it is another version.
            Err(error) if error.is_damage() || matches!(error, PartError::UnknownVersion(_)) => {
                read.copies.push((path, Err(error)));
            }
            Err(error) => return Err(error),
        }
    }
    if newest.is_none() {
        let unknown = |(_, copy): &ManifestCopy| match copy {
            Err(error @ PartError::UnknownVersion(_)) => Some(error.clone()),
            _ => None,
        };
        if let Some(error) = read.copies.iter().find_map(unknown) {
            return Err(error);
        }
    }
    read.newest = newest.map(|contents| (contents.layout, contents.state));
    Ok(Some(read))
}

impl ManifestFile {
    /// Reads the files again; `None` after an error, since the next change rewrites them.
    pub(crate) fn read_again(&self) -> Result<Option<ManifestCopies>, PartError> {
        if self.files.is_none() {
            return Ok(None);
        }
        read_copies(&*self.dir)
    }

    /// Number of the next record.
    pub(crate) const fn next_number(&self) -> u64 {
        self.number
    }

    /// Renames unreadable manifest files of a directory and writes a new manifest.
    pub(crate) fn replace_damaged(
        dir: Arc<dyn StoreDir>,
        layout: PartLayout,
        state: &ManifestEdit,
    ) -> Result<(), PartError> {
        let names = dir.list().map_err(PartError::io("list", dir.path()))?;
        for name in [NAME, COPY_NAME].into_iter().filter(|name| names.iter().any(|n| n == name)) {
            let path = dir.path().join(name);
            let kept = format!("{name}{DAMAGED_SUFFIX}");
            dir.rename(name, &kept).map_err(PartError::io("rename", &path))?;
        }
        let mut file = Self {
            dir,
            layout,
            state: ManifestState::default(),
            number: 1,
            files: None,
            written_bytes: 0,
        };
        file.commit(state)
    }

    /// Rewrites both files.
    pub(crate) fn write_anew(&mut self) -> Result<(), PartError> {
        let state = self.state.clone();
        self.rewrite(&state)
    }

    /// Opens the manifest and makes its contents durable. Creates a manifest in a directory without parts.
    ///
    /// Ignores an edit whose write was cut short.
    pub(crate) fn open(dir: Arc<dyn StoreDir>, layout: PartLayout) -> Result<Self, PartError> {
        let Some(contents) = read_newest(&*dir)? else {
            let state = ManifestState { next_sequence: 1, ..ManifestState::default() };
            let mut created = Self { dir, layout, state, number: 1, files: None, written_bytes: 0 };
            created.commit(&ManifestEdit::default())?;
            return Ok(created);
        };
        if contents.layout != layout {
            let file = dir.path().join(NAME).display().to_string().into();
            let what = format!("the layout {:?}", contents.layout);
            return Err(PartError::Unsupported { file, what });
        }
        let (state, number) = (contents.state, contents.next_number);
        let mut opened = Self { dir, layout, state, number, files: None, written_bytes: 0 };
        // The last edits may be in memory only, although they could be read: if a sync failed before the process
        // was killed, repeating the sync proves nothing.
        let state = opened.state.clone();
        match opened.rewrite(&state) {
            // Reads do not need the rewrite.
            Err(PartError::Io { source, .. }) if is_full(&source) => {}
            result => result?,
        }
        Ok(opened)
    }

    /// True if the state is durable. After an error it is not durable before the next commit.
    pub(crate) const fn is_durable(&self) -> bool {
        self.files.is_some()
    }

    /// Fails if a manifest file was removed, so that edits are lost.
    pub(crate) fn check_files(&self) -> Result<(), StorageError> {
        let Some(open) = &self.files else { return Ok(()) };
        for (file, name) in open.files.iter().zip([NAME, COPY_NAME]) {
            check_file(&*self.dir, name)?;
            if matches!(file.is_linked(), Ok(false)) {
                return Err(removed_file(&self.dir.path().join(name)));
            }
        }
        Ok(())
    }

    pub(crate) const fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Bytes written since the manifest was opened.
    pub(crate) const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Makes the edit durable, with everything that was synced before. After an error, the edit is not applied,
    /// but it may be present after the next start.
    pub(crate) fn commit(&mut self, edit: &ManifestEdit) -> Result<(), PartError> {
        let mut next = self.state.clone();
        let name = self.dir.path().join(NAME).display().to_string();
        next.apply(edit).map_err(|Malformed(what)| PartError::Damaged {
            file: name.into(),
            offset: 0,
            what,
        })?;
        match self.files.take() {
            Some(open) if open.len - open.state_len <= open.state_len.max(EDIT_BYTES) => {
                self.append(open, edit)?;
            }
            _ => self.rewrite(&next)?,
        }
        self.state = next;
        Ok(())
    }

    fn append(&mut self, mut open: OpenFiles, edit: &ManifestEdit) -> Result<(), PartError> {
        let mut bytes = Vec::new();
        record::put(self.number, None, edit, &mut bytes);
        for (file, name) in open.files.iter_mut().zip([NAME, COPY_NAME]) {
            let path = self.dir.path().join(name);
            file.write_at(open.len, &bytes).map_err(PartError::io("write", &path))?;
            file.sync_data().map_err(PartError::io("sync", &path))?;
            self.written_bytes += bytes.len() as u64;
        }
        self.number += 1;
        open.len += bytes.len() as u64;
        self.files = Some(open);
        Ok(())
    }

    fn rewrite(&mut self, state: &ManifestState) -> Result<(), PartError> {
        self.files = None;
        let bytes = encode(self.number, self.layout, state);
        let files = [self.replace(NAME, &bytes)?, self.replace(COPY_NAME, &bytes)?];
        self.number += 1;
        let len = bytes.len() as u64;
        self.files = Some(OpenFiles { files, len, state_len: len });
        Ok(())
    }

    /// Replaces a file durably.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Box<dyn StoreFile>, PartError> {
        let new = format!("{name}{NEW_SUFFIX}");
        let path = self.dir.path().join(&new);
        let _ = self.dir.remove(&new);
        let mut file = self.dir.create(&new).map_err(PartError::io("create", &path))?;
        file.write_at(0, bytes).map_err(PartError::io("write", &path))?;
        file.sync_data().map_err(PartError::io("sync", &path))?;
        self.dir.rename(&new, name).map_err(PartError::io("rename", &path))?;
        self.dir.sync().map_err(PartError::io("sync", self.dir.path()))?;
        self.written_bytes += bytes.len() as u64;
        Ok(file)
    }
}

/// The contents of a manifest file with one state.
pub(crate) fn encode(number: u64, layout: PartLayout, state: &ManifestState) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    record::put(number, Some(layout), &state.as_edit(), &mut bytes);
    bytes
}

/// The layout and the state of the store in a directory, without any change; `None` without a store.
pub(crate) fn stored_state(
    dir: &dyn StoreDir,
) -> Result<Option<(PartLayout, ManifestState)>, PartError> {
    Ok(read_newest(dir)?.map(|contents| (contents.layout, contents.state)))
}

/// Decodes the contents of a manifest and encodes its state again.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_manifest(bytes: &[u8]) -> Result<Vec<u8>, (usize, &'static str)> {
    let Contents { layout, state, next_number } =
        Contents::read(bytes).map_err(|(at, Malformed(what))| (at, what))?;
    Ok(encode(next_number.saturating_sub(1), layout, &state))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The version of a manifest; `None` if the bytes do not begin as a manifest.
fn version_of(bytes: &[u8]) -> Option<u8> {
    let (version, name) = MAGIC.split_last()?;
    let (stated, rest) = bytes.get(..MAGIC.len())?.split_last()?;
    debug_assert!(VERSIONS.contains(version), "it reads what it writes");
    (rest == name).then_some(*stated)
}

impl Contents {
    fn read_file(dir: &dyn StoreDir, name: &str) -> Result<Self, PartError> {
        let path = dir.path().join(name).display().to_string();
        let read = |via| Self::read_file_via(dir, name, via);
        read_repeatedly(&path, read, |error| match error {
            PartError::Io { source, .. } => Reread::after(source),
            _ => Reread::AtOnce,
        })
    }

    fn read_file_via(dir: &dyn StoreDir, name: &str, via: ReadVia) -> Result<Self, PartError> {
        let path = dir.path().join(name);
        let bytes = dir.read_via(via, name, 0, usize::MAX).map_err(PartError::io("read", &path))?;
        let file: Arc<str> = path.display().to_string().into();
        if let Some(version) = version_of(&bytes).filter(|version| !VERSIONS.contains(version)) {
            return Err(UnknownVersion::new("store file", file, version, "1 and 2").into());
        }
        Self::read(&bytes).map_err(|(offset, Malformed(what))| PartError::Damaged {
            file,
            offset: offset as u64,
            what,
        })
    }

    /// Reads the state and the edits after it, up to the first record that is not intact. Fails if an intact
    /// record follows, because a write that was cut short cannot leave that.
    fn read(bytes: &[u8]) -> Result<Self, (usize, Malformed)> {
        let version = version_of(bytes).filter(|version| VERSIONS.contains(version));
        let version = version.ok_or((0, Malformed("does not begin as a manifest")))?;
        let mut at = MAGIC.len();
        let mut contents: Option<Self> = None;
        while let Some(payload) = record::intact(bytes.get(at..).unwrap_or_default()) {
            let wrong = |error| (at, error);
            let end = at + HEAD + payload.len();
            let read = record::decode(payload, version).map_err(wrong)?;
            match (&mut contents, read.layout) {
                (None, Some(layout)) => {
                    let mut state = ManifestState::default();
                    state.apply(&read.edit).map_err(wrong)?;
                    let next_number = read.number.saturating_add(1);
                    contents = Some(Self { layout, state, next_number });
                }
                (Some(contents), None) if read.number == contents.next_number => {
                    contents.state.apply(&read.edit).map_err(wrong)?;
                    contents.next_number = contents.next_number.saturating_add(1);
                }
                _ => return Err(wrong(Malformed("order of the records"))),
            }
            at = end;
        }
        let contents = contents.ok_or((at, Malformed("no state")))?;
        // Numbers are consecutive. The checksum of a long payload is computed only if the number fits; otherwise,
        // a large file full of lengths would be read that many times.
        let last = contents.next_number.saturating_add(bytes.len() as u64);
        let is_later = |at: usize| {
            let rest = bytes.get(at..).unwrap_or_default();
            record::claimed_number(rest)
                .is_some_and(|number| number > contents.next_number && number <= last)
                && record::intact(rest)
                    .is_some_and(|payload| record::decode(payload, version).is_ok())
        };
        if (at + 1..bytes.len()).any(is_later) {
            return Err((at, Malformed("checksum of a record")));
        }
        Ok(contents)
    }
}
