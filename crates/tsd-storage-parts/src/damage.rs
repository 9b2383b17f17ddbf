//! Damaged blocks of live sections. Reads that do not need such a block succeed.

use parking_lot::Mutex;
use std::sync::Arc;

use crate::{
    error::PartError,
    part::{BlockUse, Part},
    section::{BlockRef, SectionHead},
};

/// Maximum number of errors that wait to be recorded. Reads find the others again later.
const MAX_FOUND: usize = 256;

/// Damage that reads skipped and that is not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct FoundDamage(Mutex<Vec<PartError>>);

impl FoundDamage {
    fn push(&self, error: PartError) {
        let mut found = self.0.lock();
        if found.len() < MAX_FOUND {
            found.push(error);
        }
    }

    /// Takes the damage that was found since the last call.
    pub(crate) fn take(&self) -> Vec<PartError> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The damaged blocks of a live section.
#[derive(Debug)]
pub struct SectionDamage {
    /// Offsets of the blocks in the file, sorted.
    pub(crate) offsets: Vec<u64>,
    pub(crate) name: Arc<str>,
    pub(crate) file: Arc<str>,
    pub(crate) what: Arc<str>,
}

/// How a reader treats damaged blocks of a section. By default, as in merges and checks, a damaged block is an
/// error.
#[derive(Clone, Debug, Default)]
pub(crate) struct DamageUse {
    pub(crate) known: Option<Arc<SectionDamage>>,
    /// Collects damage that is not known yet and that the reader skips.
    pub(crate) found: Option<Arc<FoundDamage>>,
    /// Skips damaged blocks and returns the intact rows.
    pub(crate) skips: bool,
}

impl DamageUse {
    /// Skips the damaged blocks at these offsets.
    pub(crate) fn past(offsets: &[u64]) -> Self {
        let none: Arc<str> = "".into();
        let (name, file, what) = (Arc::clone(&none), Arc::clone(&none), none);
        let known = SectionDamage { offsets: offsets.to_vec(), name, file, what };
        Self { known: Some(Arc::new(known)), found: None, skips: true }
    }

    fn is_known(&self, block: &BlockRef) -> Option<&SectionDamage> {
        self.known.as_deref().filter(|known| known.offsets.binary_search(&block.offset).is_ok())
    }

    /// Reads a block that the reader needs; `None` if it is damaged and the reader skips damage.
    pub(crate) fn read<T>(
        &self,
        part: &Part,
        block: &BlockRef,
        read: impl FnOnce() -> Result<T, PartError>,
    ) -> Result<Option<T>, PartError> {
        match self.is_known(block) {
            Some(_) if self.skips => Ok(None),
            Some(known) => Err(PartError::QuarantinedBlock {
                name: Arc::clone(&known.name),
                file: Arc::clone(&known.file),
                what: Arc::clone(&known.what),
                number: part.number(),
                offset: block.offset,
            }),
            None if self.skips => self.read_if_intact(read),
            None => read().map(Some),
        }
    }

    /// Reads a block that the reader can do without; `None` if it is damaged.
    pub(crate) fn read_optional<T>(
        &self,
        block: &BlockRef,
        read: impl FnOnce() -> Result<T, PartError>,
    ) -> Result<Option<T>, PartError> {
        if self.is_known(block).is_some() { Ok(None) } else { self.read_if_intact(read) }
    }

    /// The head of a section for a query; `None` if it is damaged and the reader skips damage.
    pub(crate) fn head(
        &self,
        part: &Part,
        section: usize,
    ) -> Result<Option<Arc<SectionHead>>, PartError> {
        let read = || part.head(section, BlockUse::Cached);
        if self.skips { self.read_if_intact(read) } else { read().map(Some) }
    }

    fn read_if_intact<T>(
        &self,
        read: impl FnOnce() -> Result<T, PartError>,
    ) -> Result<Option<T>, PartError> {
        match (read(), &self.found) {
            (Err(error), Some(found)) if error.is_damage() => {
                found.push(error);
                Ok(None)
            }
            (result, _) => result.map(Some),
        }
    }
}
