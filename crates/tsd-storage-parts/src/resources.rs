//! Resources that the stores of a daemon share: block cache, open files, disk space.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use quick_cache::{OptionsBuilder, UnitWeighter, Weighter, sync::Cache, sync::DefaultLifecycle};
use tsd_files::{DiskSpace, SpacePermit, StoreFileReader};
use tsd_storage::StorageError;

use crate::{block::MarkedBlock, error::PartError, section::SectionHead};

/// Available disk space below which space is low.
const LOW_SPACE_BYTES: u64 = 16 << 20;
/// Memory overhead of a cache entry, bytes.
const ENTRY_BYTES: u64 = 128;
/// Assumed average size of an entry, to size the cache.
const AVERAGE_BYTES: u64 = 8 << 10;

/// Part, and offset in its file.
type BlockKey = (u64, u64);

/// The block cache, open files and disk space of all stores of a process.
#[derive(Debug)]
pub struct PartResources {
    blocks: Cache<BlockKey, CachedBlock, BlockWeight, RandomState>,
    files: Cache<u64, Arc<dyn StoreFileReader>, UnitWeighter, RandomState>,
    space: Arc<DiskSpace>,
    next_part: AtomicU64,
    readers: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    opened: AtomicU64,
}

/// A cached block whose checksum was verified.
#[derive(Clone, Debug)]
enum CachedBlock {
    Bytes(Bytes),
    Data(Arc<MarkedBlock>),
    Head(Arc<SectionHead>),
}

#[derive(Clone, Copy, Debug)]
struct BlockWeight;

impl Weighter<BlockKey, CachedBlock> for BlockWeight {
    fn weight(&self, _: &BlockKey, block: &CachedBlock) -> u64 {
        let bytes = match block {
            CachedBlock::Bytes(bytes) => bytes.len(),
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Head(head) => head.memory_bytes(),
        };
        bytes as u64 + ENTRY_BYTES
    }
}

/// Counts a read in progress, to which merges yield.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a>(&'a AtomicUsize);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PartResources {
    /// Default capacity of the cache, bytes.
    pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;
    /// Default number of files that are kept open.
    pub const DEFAULT_OPEN_FILES: usize = 512;

    /// Creates a cache of `cache_bytes` for heads and blocks of sections, and keeps at most `open_files` files
    /// open. Reads of other files reopen them. `space` is the disk of the stores.
    #[must_use]
    pub fn new(cache_bytes: u64, open_files: usize, space: Arc<DiskSpace>) -> Self {
        let open_files = open_files.max(1);
        let mut options = OptionsBuilder::new();
        // One shard, so that the limit holds for all files together.
        options.shards(1).estimated_items_capacity(open_files).weight_capacity(open_files as u64);
        let files = match options.build() {
            Ok(options) => Cache::with_options(
                options,
                UnitWeighter,
                RandomState::default(),
                DefaultLifecycle::default(),
            ),
            // Unreachable: both capacities are set.
            Err(_) => Cache::with(
                open_files,
                open_files as u64,
                UnitWeighter,
                RandomState::default(),
                DefaultLifecycle::default(),
            ),
        };
        let blocks = Cache::with(
            usize::try_from(cache_bytes / AVERAGE_BYTES).unwrap_or(usize::MAX).max(16),
            cache_bytes,
            BlockWeight,
            RandomState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            blocks,
            files,
            space,
            next_part: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    /// Returns the number of a newly opened part.
    pub(crate) fn next_part(&self) -> u64 {
        self.next_part.fetch_add(1, Ordering::Relaxed)
    }

    /// The file of a part. Calls `open` if it is not open.
    pub(crate) fn file(
        &self,
        part: u64,
        open: impl FnOnce() -> Result<Box<dyn StoreFileReader>, PartError>,
    ) -> Result<Arc<dyn StoreFileReader>, PartError> {
        self.files.get_or_insert_with(&part, || {
            self.opened.fetch_add(1, Ordering::Relaxed);
            open().map(Arc::from)
        })
    }

    /// Closes the file of an unused part, so that a removed file frees its space.
    pub(crate) fn close(&self, part: u64) {
        self.files.remove(&part);
    }

    fn cached(&self, key: BlockKey) -> Option<CachedBlock> {
        let found = self.blocks.get(&key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// The verified block of a part at an offset. Calls `read` if the block is not cached.
    pub(crate) fn block(
        &self,
        part: u64,
        offset: u64,
        read: impl FnOnce() -> Result<Bytes, PartError>,
    ) -> Result<Bytes, PartError> {
        if let Some(CachedBlock::Bytes(bytes)) = self.cached((part, offset)) {
            return Ok(bytes);
        }
        let bytes = read()?;
        self.blocks.insert((part, offset), CachedBlock::Bytes(bytes.clone()));
        Ok(bytes)
    }

    /// As [`Self::block`], for a block of chunks.
    pub(crate) fn data(
        &self,
        part: u64,
        offset: u64,
        read: impl FnOnce() -> Result<Arc<MarkedBlock>, PartError>,
    ) -> Result<Arc<MarkedBlock>, PartError> {
        if let Some(CachedBlock::Data(block)) = self.cached((part, offset)) {
            return Ok(block);
        }
        let block = read()?;
        self.blocks.insert((part, offset), CachedBlock::Data(Arc::clone(&block)));
        Ok(block)
    }

    /// As [`Self::block`], for the head of a section.
    pub(crate) fn head(
        &self,
        part: u64,
        offset: u64,
        read: impl FnOnce() -> Result<SectionHead, PartError>,
    ) -> Result<Arc<SectionHead>, PartError> {
        if let Some(CachedBlock::Head(head)) = self.cached((part, offset)) {
            return Ok(head);
        }
        let head = Arc::new(read()?);
        self.blocks.insert((part, offset), CachedBlock::Head(Arc::clone(&head)));
        Ok(head)
    }

    /// Marks a read as in progress.
    pub(crate) fn reading(&self) -> ReadGuard<'_> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        ReadGuard(&self.readers)
    }

    /// Number of reads in progress.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// True if disk space is low, so that merges should remove deleted rows.
    pub(crate) fn is_space_low(&self) -> bool {
        self.space.available_bytes().is_ok_and(|available| available < LOW_SPACE_BYTES)
    }

    /// Reserves disk space for an output. An output that frees space may use the reserve.
    pub(crate) fn promise(&self, bytes: u64, frees_space: bool) -> Result<SpacePermit, PartError> {
        let promised = self.space.promise(bytes);
        let promised = match promised {
            Err(StorageError::DiskFull) if frees_space => self.space.promise_from_reserve(bytes),
            promised => promised,
        };
        promised.map_err(|error| match error {
            StorageError::Io { what, error } => {
                PartError::Io { action: "find space:", file: what, source: error }
            }
            _ => PartError::DiskFull,
        })
    }

    /// Metrics without labels, as (name, value).
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, f64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        vec![
            ("tsd_parts_cache_bytes", self.blocks.weight() as f64),
            ("tsd_parts_cache_capacity_bytes", self.blocks.capacity() as f64),
            ("tsd_parts_cache_hits_total", count(&self.hits)),
            ("tsd_parts_cache_misses_total", count(&self.misses)),
            ("tsd_parts_opened_files_total", count(&self.opened)),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_files::{FaultyDisk, StoreDir};

    use super::*;

    fn resources(cache_bytes: u64, open_files: usize) -> PartResources {
        PartResources::new(cache_bytes, open_files, Arc::new(DiskSpace::new("/", 0)))
    }

    #[test]
    fn blocks_are_read_once_and_use_at_most_the_capacity() {
        let resources = resources(1 << 20, 4);
        let mut reads = 0;
        for _ in 0..2 {
            let mut read = || {
                reads += 1;
                Ok(Bytes::from_static(b"block"))
            };
            assert_eq!(resources.block(1, 8, &mut read).unwrap(), "block");
        }
        assert_eq!(reads, 1);
        for offset in 0..10_000 {
            resources.block(2, offset, || Ok(vec![0; 1_000].into())).unwrap();
        }
        assert!(resources.blocks.weight() <= 1 << 20);
        let gauges = resources.gauges();
        assert!(gauges.contains(&("tsd_parts_cache_hits_total", 1.0)), "{gauges:?}");
        assert!(gauges.contains(&("tsd_parts_cache_misses_total", 10_001.0)), "{gauges:?}");
    }

    #[test]
    fn an_error_is_not_cached() {
        let resources = resources(1 << 20, 4);
        assert!(resources.block(1, 8, || Err(PartError::Stopped)).is_err());
        assert_eq!(resources.block(1, 8, || Ok(Bytes::from_static(b"a"))).unwrap(), "a");
    }

    #[test]
    fn a_limited_number_of_files_stays_open() {
        let (disk, resources) = (FaultyDisk::new(1), resources(1 << 20, 3));
        disk.create("file").unwrap();
        for part in 0..50 {
            let open = || disk.open_reader("file").map_err(PartError::io("open", disk.path()));
            resources.file(part, open).unwrap();
            assert!(resources.files.len() <= 3);
        }
        resources.close(49);
        assert!(resources.gauges().contains(&("tsd_parts_opened_files_total", 50.0)));
    }

    #[test]
    fn what_frees_space_may_use_the_reserve() {
        let space = Arc::new(DiskSpace::with_probe("/data", 80, || Ok(100)));
        let resources = PartResources::new(1 << 20, 4, space);
        assert!(matches!(resources.promise(21, false), Err(PartError::DiskFull)));
        resources.promise(20, false).unwrap();
        resources.promise(80, true).unwrap();
        assert!(matches!(resources.promise(81, true), Err(PartError::DiskFull)));
    }
}
