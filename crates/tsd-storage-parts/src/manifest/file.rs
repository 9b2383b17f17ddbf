//! The file of the manifest: appended edits, periodic rewrites.

use std::{io, sync::Arc};

use tsd_storage::{StoreDir, StoreFile, UnknownVersion};

use super::{
    ManifestEdit, ManifestState,
    record::{self, HEAD},
};
use crate::{
    error::{Malformed, PartError},
    layout::PartLayout,
};

/// Name of the file.
pub(crate) const NAME: &str = "manifest";
/// Has the same records. A flipped bit of one file, also of its last record, does not lose parts.
pub(crate) const COPY_NAME: &str = "manifest.copy";
/// Added to a name until the file is durable.
const NEW_SUFFIX: &str = ".new";
/// Added to the name of a file that was replaced because it could not be read.
const DAMAGED_SUFFIX: &str = ".damaged";
const MAGIC: &[u8; 8] = b"SLTMANI\x01";
/// Edits are kept at least up to this size.
const EDIT_BYTES: u64 = 64 << 10;

/// The manifest of an open store.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    dir: Arc<dyn StoreDir>,
    layout: PartLayout,
    state: ManifestState,
    /// Number of the next record.
    number: u64,
    /// `None` if the files must be written anew: after an error nobody knows what of them is durable.
    files: Option<OpenFiles>,
    written_bytes: u64,
}

/// The file and its copy.
#[derive(Debug)]
struct OpenFiles {
    files: [Box<dyn StoreFile>; 2],
    /// Their length, and the length of the state in them.
    len: u64,
    state_len: u64,
}

/// What was read of a manifest.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    layout: PartLayout,
    state: ManifestState,
    next_number: u64,
}

/// The layout of the store in a directory; `None` if there is none.
pub(crate) fn stored_layout(dir: &dyn StoreDir) -> Result<Option<PartLayout>, PartError> {
    Ok(read_newest(dir)?.map(|contents| contents.layout))
}

/// Reads the manifest, or its copy if that has more; `None` in a directory without parts. Fails if
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

/// One of the files of a manifest: its name, and the number after its last record or why it cannot be read.
pub(crate) type ManifestCopy = (String, Result<u64, PartError>);

/// What the files of a manifest say. Nothing is changed.
#[derive(Debug)]
pub(crate) struct ManifestCopies {
    /// Each file, whether it can be read or not.
    pub(crate) copies: Vec<ManifestCopy>,
    /// The newest state, if one can be read.
    pub(crate) newest: Option<(PartLayout, ManifestState)>,
}

/// True if one of these files is of a manifest, or a part.
pub(crate) fn has_table(names: &[String]) -> bool {
    let is_manifest = |name: &str| name == NAME || name == COPY_NAME;
    names.iter().any(|name| is_manifest(name) || crate::file_names::part_number(name).is_some())
}

/// Reads both files of the manifest in a directory; `None` if there are neither of them nor parts.
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
            // Of one file a flipped byte; of both it is another version.
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
    /// Reads the files again; `None` after an error, when the next change writes them anew.
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

    /// Writes the manifest of a directory whose files of it cannot be read; they get other names.
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

    /// Writes both files anew.
    pub(crate) fn write_anew(&mut self) -> Result<(), PartError> {
        let state = self.state.clone();
        self.rewrite(&state)
    }

    /// Opens the manifest and makes what it says durable; creates one in a directory without parts.
    ///
    /// An edit whose write was cut short is as if it had never been.
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
        // The last edits may be in memory only, even if they were read just now: a sync that failed
        // before the process was killed proves nothing when it is repeated.
        let state = opened.state.clone();
        match opened.rewrite(&state) {
            // Reads do not need it.
            Err(PartError::Io { source, .. }) if is_full(&source) => {}
            result => result?,
        }
        Ok(opened)
    }

    /// True if the state is durable. After an error it is not before the next commit.
    pub(crate) const fn is_durable(&self) -> bool {
        self.files.is_some()
    }

    pub(crate) const fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Bytes written since it was opened.
    pub(crate) const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Makes the edit durable, with everything that was synced before. After an error the edit is not
    /// applied, but the store may have it when it is opened again.
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

    /// Replaces a file, durably.
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

/// The contents of a manifest with one state.
pub(crate) fn encode(number: u64, layout: PartLayout, state: &ManifestState) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    record::put(number, Some(layout), &state.as_edit(), &mut bytes);
    bytes
}

/// The state of the store in a directory, and its layout; `None` if there is none. Changes nothing.
pub(crate) fn stored_state(
    dir: &dyn StoreDir,
) -> Result<Option<(PartLayout, ManifestState)>, PartError> {
    Ok(read_newest(dir)?.map(|contents| (contents.layout, contents.state)))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Contents {
    fn read_file(dir: &dyn StoreDir, name: &str) -> Result<Self, PartError> {
        let path = dir.path().join(name);
        let bytes = dir.read(name, 0, usize::MAX).map_err(PartError::io("read", &path))?;
        let file: Arc<str> = path.display().to_string().into();
        if bytes.get(..7) == MAGIC.get(..7) && bytes.get(7) != MAGIC.get(7) {
            let version = bytes.get(7).copied().unwrap_or_default();
            return Err(UnknownVersion::new("store file", file, version, 1).into());
        }
        Self::read(&bytes).map_err(|(offset, Malformed(what))| PartError::Damaged {
            file,
            offset: offset as u64,
            what,
        })
    }

    /// Reads a state and the edits after it, up to the first record that is not intact. Fails if
    /// another one follows it, which a write that was cut short does not leave.
    fn read(bytes: &[u8]) -> Result<Self, (usize, Malformed)> {
        if !bytes.starts_with(MAGIC) {
            return Err((0, Malformed("does not begin as a manifest")));
        }
        let mut at = MAGIC.len();
        let mut contents: Option<Self> = None;
        while let Some(payload) = record::intact(bytes.get(at..).unwrap_or_default()) {
            let wrong = |error| (at, error);
            let end = at + HEAD + payload.len();
            let read = record::decode(payload).map_err(wrong)?;
            match (&mut contents, read.layout) {
                (None, Some(layout)) => {
                    let mut state = ManifestState::default();
                    state.apply(&read.edit).map_err(wrong)?;
                    let next_number = read.number.saturating_add(1);
                    contents = Some(Self { layout, state, next_number });
                }
                (Some(contents), None) if read.number == contents.next_number => {
                    contents.state.apply(&read.edit).map_err(wrong)?;
                    contents.next_number += 1;
                }
                _ => return Err(wrong(Malformed("order of the records"))),
            }
            at = end;
        }
        let contents = contents.ok_or((at, Malformed("no state")))?;
        let is_later = |at: usize| {
            let payload = record::intact(bytes.get(at..).unwrap_or_default());
            payload.is_some_and(|payload| {
                record::decode(payload).is_ok_and(|later| later.number > contents.next_number)
            })
        };
        if (at + 1..bytes.len()).any(is_later) {
            return Err((at, Malformed("checksum of a record")));
        }
        Ok(contents)
    }
}
