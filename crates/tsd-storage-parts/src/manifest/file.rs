//! The file of the manifest: appended edits, periodic rewrites.

use std::{io, sync::Arc};

use tsd_storage::{StoreDir, StoreFile};

use super::{
    ManifestEdit, ManifestState,
    record::{self, HEAD},
};
use crate::{
    error::{Malformed, PartError},
    layout::PartLayout,
};

const NAME: &str = "manifest";
/// Renamed to [`NAME`] when it is durable.
const NEW_NAME: &str = "manifest.new";
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
    /// The file, its length, and the length of the state in it. `None` if it must be written anew:
    /// after an error nobody knows what of it is durable.
    file: Option<(Box<dyn StoreFile>, u64, u64)>,
    written_bytes: u64,
}

/// What was read of a manifest.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    layout: PartLayout,
    state: ManifestState,
    next_number: u64,
}

impl ManifestFile {
    /// Opens the manifest and makes what it says durable; creates one in a directory without parts.
    ///
    /// An edit whose write was cut short is as if it had never been.
    pub(crate) fn open(dir: Arc<dyn StoreDir>, layout: PartLayout) -> Result<Self, PartError> {
        let path = dir.path().join(NAME);
        let names = dir.list().map_err(PartError::io("list", dir.path()))?;
        let name: Arc<str> = path.display().to_string().into();
        if !names.iter().any(|name| name == NAME) {
            if names.iter().any(|name| crate::store::part_number(name).is_some()) {
                let what = "the manifest is missing";
                return Err(PartError::Damaged { file: name, offset: 0, what });
            }
            let state = ManifestState { next_sequence: 1, ..ManifestState::default() };
            let mut created = Self { dir, layout, state, number: 1, file: None, written_bytes: 0 };
            created.commit(&ManifestEdit::default())?;
            return Ok(created);
        }
        let bytes = dir.read(NAME, 0, usize::MAX).map_err(PartError::io("read", &path))?;
        if bytes.get(..7) == MAGIC.get(..7) && bytes.get(7) != MAGIC.get(7) {
            let what = format!("version {}", bytes.get(7).copied().unwrap_or_default());
            return Err(PartError::Unsupported { file: name, what });
        }
        let contents = Contents::read(&bytes).map_err(|(offset, Malformed(what))| {
            PartError::Damaged { file: Arc::clone(&name), offset: offset as u64, what }
        })?;
        if contents.layout != layout {
            let what = format!("the layout {:?}", contents.layout);
            return Err(PartError::Unsupported { file: name, what });
        }
        let (state, number) = (contents.state, contents.next_number);
        let mut opened = Self { dir, layout, state, number, file: None, written_bytes: 0 };
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
        self.file.is_some()
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
        match self.file.take() {
            Some((file, len, state_len)) if len - state_len <= state_len.max(EDIT_BYTES) => {
                self.append(file, (len, state_len), edit)?;
            }
            _ => self.rewrite(&next)?,
        }
        self.state = next;
        Ok(())
    }

    fn append(
        &mut self,
        mut file: Box<dyn StoreFile>,
        (len, state_len): (u64, u64),
        edit: &ManifestEdit,
    ) -> Result<(), PartError> {
        let mut bytes = Vec::new();
        record::put(self.number, None, edit, &mut bytes);
        let path = self.dir.path().join(NAME);
        file.write_at(len, &bytes).map_err(PartError::io("write", &path))?;
        file.sync_data().map_err(PartError::io("sync", &path))?;
        self.number += 1;
        self.written_bytes += bytes.len() as u64;
        self.file = Some((file, len + bytes.len() as u64, state_len));
        Ok(())
    }

    fn rewrite(&mut self, state: &ManifestState) -> Result<(), PartError> {
        let mut bytes = MAGIC.to_vec();
        record::put(self.number, Some(self.layout), &state.as_edit(), &mut bytes);
        let len = bytes.len() as u64;
        let path = self.dir.path().join(NEW_NAME);
        // One that was not completed; if it cannot be removed, the next call says why.
        let _ = self.dir.remove(NEW_NAME);
        let mut file = self.dir.create(NEW_NAME).map_err(PartError::io("create", &path))?;
        file.write_at(0, &bytes).map_err(PartError::io("write", &path))?;
        file.sync_data().map_err(PartError::io("sync", &path))?;
        self.dir.rename(NEW_NAME, NAME).map_err(PartError::io("rename", &path))?;
        self.dir.sync().map_err(PartError::io("sync", self.dir.path()))?;
        self.number += 1;
        self.written_bytes += len;
        self.file = Some((file, len, len));
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Contents {
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
