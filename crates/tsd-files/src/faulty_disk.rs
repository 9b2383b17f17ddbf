//! A simulated disk for tests: it fills up, fails, tears writes and loses unsynced bytes.

use parking_lot::Mutex;
use std::{collections::BTreeMap, io, ops::Range, path::Path, sync::Arc};

use rustix::io::Errno;

use crate::{
    reread::ReadVia,
    store_dir::{StoreDir, StoreFile, StoreFileReader},
};

const SECTOR: usize = 512;

/// Pseudorandom numbers from a seed.
#[derive(Clone, Debug)]
pub struct TestRng(u64);

impl TestRng {
    /// Numbers that follow from the seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// True with this probability.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The disk. A clone is a handle of the same disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<Disk>>);

#[derive(Clone, Debug)]
struct Disk {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    rng: TestRng,
    /// `None`: no limit.
    free_bytes: Option<usize>,
    /// Number of next syncs that fail, and the failure probability of other syncs.
    failing_syncs: usize,
    sync_failure_percent: u64,
    calls_until_power_cut: Option<u64>,
    is_off: bool,
    panics_on_remove: bool,
    fails_removals: bool,
    /// Number of next reads of files that fail.
    failing_reads: usize,
}

#[derive(Clone, Debug, Default)]
struct File {
    content: Vec<u8>,
    /// Ranges that the disk cannot read.
    bad: Vec<Range<usize>>,
    /// Bytes that are wrong in the page cache only, with the bits that differ.
    wrong_in_cache: BTreeMap<usize, u8>,
    synced: Vec<u8>,
    unsynced: Vec<FileChange>,
}

#[derive(Clone, Debug)]
enum FileChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
    ZeroFrom(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Add(String, usize),
    Remove(String),
}

impl FaultyDisk {
    /// An empty disk; the seed decides which bytes and names a power cut leaves.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            files: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            name_changes: Vec::new(),
            rng: TestRng::new(seed),
            free_bytes: None,
            failing_syncs: 0,
            sync_failure_percent: 0,
            calls_until_power_cut: None,
            is_off: false,
            panics_on_remove: false,
            fails_removals: false,
            failing_reads: 0,
        })))
    }

    /// Makes the next reads of files fail like reads of a bad medium.
    pub fn fail_reads(&self, count: usize) {
        self.0.lock().failing_reads = count;
    }

    /// Makes the reads of a range of a file fail, until [`Self::heal`].
    pub fn spoil(&self, name: &str, range: Range<usize>) {
        self.with_file(name, |file| file.bad.push(range));
    }

    /// Makes the file readable again, as it was before [`Self::spoil`].
    pub fn heal(&self, name: &str) {
        self.with_file(name, |file| file.bad.clear());
    }

    /// Damages a byte in the page cache only.
    pub fn flip_in_cache(&self, name: &str, at: usize, mask: u8) {
        self.with_file(name, |file| {
            file.wrong_in_cache.insert(at, mask);
        });
    }

    fn with_file(&self, name: &str, change: impl FnOnce(&mut File)) {
        let mut disk = self.0.lock();
        if let Some(at) = disk.names.get(name).copied()
            && let Some(file) = disk.files.get_mut(at)
        {
            change(file);
        }
    }

    /// Sets whether the removal of files fails.
    pub fn fail_removals(&self, fails: bool) {
        self.0.lock().fails_removals = fails;
    }

    /// Makes the next thread that removes a file panic.
    pub fn panic_on_remove(&self) {
        self.0.lock().panics_on_remove = true;
    }

    /// Limits the bytes that can still be written; `None` for no limit.
    pub fn set_free_bytes(&self, bytes: Option<usize>) {
        self.0.lock().free_bytes = bytes;
    }

    /// Makes the next syncs of files fail.
    pub fn fail_syncs(&self, count: usize) {
        self.0.lock().failing_syncs = count;
    }

    /// Makes syncs of files fail with this probability.
    pub fn set_sync_failures(&self, percent: u64) {
        self.0.lock().sync_failure_percent = percent;
    }

    /// Cuts the power after a number of calls.
    pub fn cut_power_after(&self, calls: u64) {
        self.0.lock().calls_until_power_cut = Some(calls);
    }

    /// The disk after a power cut: synced bytes, and random sectors of unsynced bytes.
    #[must_use]
    pub fn after_power_cut(&self) -> Self {
        let mut disk = self.0.lock().clone();
        let kept_names = disk.rng.below(disk.name_changes.len() as u64 + 1) as usize;
        let mut names = disk.synced_names.clone();
        for change in disk.name_changes.iter().take(kept_names) {
            change.apply(&mut names);
        }
        let percent = *[0, 20, 50, 80, 100].get(disk.rng.below(5) as usize).unwrap_or(&50);
        let mut rng = disk.rng.clone();
        for file in &mut disk.files {
            for change in std::mem::take(&mut file.unsynced) {
                change.apply_some(&mut file.synced, &mut rng, percent);
            }
            file.content = file.synced.clone();
        }
        Self::restarted(Disk {
            names: names.clone(),
            synced_names: names,
            name_changes: Vec::new(),
            rng,
            ..disk
        })
    }

    /// The disk after a kill of the process: all written bytes.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        Self::restarted(self.0.lock().clone())
    }

    fn restarted(disk: Disk) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            free_bytes: None,
            failing_syncs: 0,
            sync_failure_percent: 0,
            calls_until_power_cut: None,
            is_off: false,
            fails_removals: false,
            ..disk
        })))
    }

    /// Names and contents of all files except one.
    #[must_use]
    pub fn contents_without(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.all_contents();
        files.remove(name);
        files
    }

    /// Names and contents of all files.
    #[must_use]
    pub fn all_contents(&self) -> BTreeMap<String, Vec<u8>> {
        let disk = self.0.lock();
        let bytes = |at: &usize| disk.files.get(*at).map(|f| f.content.clone()).unwrap_or_default();
        disk.names.iter().map(|(name, at)| (name.clone(), bytes(at))).collect()
    }

    /// Damages a byte.
    pub fn flip(&self, name: &str, at: usize, mask: u8) {
        self.edit(name, |bytes| {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        });
    }

    /// Changes the contents of a file.
    pub fn edit(&self, name: &str, how: impl Fn(&mut Vec<u8>)) {
        self.with_file(name, |file| {
            how(&mut file.content);
            file.synced = file.content.clone();
        });
    }

    /// Removes a file.
    pub fn lose(&self, name: &str) {
        self.0.lock().names.remove(name);
    }

    fn call<T>(&self, what: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.0.lock();
        if disk.is_off {
            return Err(io::Error::other("the power is off"));
        }
        what(&mut disk)
    }
}

impl Disk {
    /// Counts a call. Returns true if the power is cut during it.
    fn count(&mut self) -> bool {
        if let Some(calls) = &mut self.calls_until_power_cut {
            *calls = calls.saturating_sub(1);
            self.is_off = *calls == 0;
        }
        self.is_off
    }

    fn file(&mut self, at: usize) -> io::Result<&mut File> {
        self.files.get_mut(at).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Reads up to `len` bytes of a file.
    fn read(&mut self, via: ReadVia, at: usize, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let fails = self.failing_reads > 0;
        self.failing_reads = self.failing_reads.saturating_sub(1);
        let file = self.file(at)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = file.content.get(start..).unwrap_or_default();
        let mut bytes = rest.get(..len).unwrap_or(rest).to_vec();
        let end = start.saturating_add(bytes.len());
        if fails || file.bad.iter().any(|bad| bad.start < end && start < bad.end) {
            return Err(Errno::IO.into());
        }
        if via == ReadVia::Disk {
            file.wrong_in_cache.retain(|at, _| !(start..end).contains(at));
        }
        for (at, mask) in file.wrong_in_cache.range(start..end.max(start)) {
            if let Some(byte) = bytes.get_mut(at - start) {
                *byte ^= mask;
            }
        }
        Ok(bytes)
    }

    fn named(&mut self, name: &str) -> io::Result<&mut File> {
        let at = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        self.file(at)
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    fn sync(&mut self, at: usize) -> io::Result<()> {
        let percent = self.sync_failure_percent;
        let fails = self.failing_syncs > 0 || self.rng.chance(percent);
        self.failing_syncs = self.failing_syncs.saturating_sub(1);
        let is_cut = self.count();
        let mut rng = self.rng.clone();
        let file = self.file(at)?;
        if fails {
            // Some unsynced changes are lost, and a second sync does not report that.
            file.unsynced.retain(|_| rng.chance(50));
        } else if !is_cut {
            for change in std::mem::take(&mut file.unsynced) {
                change.apply(&mut file.synced);
            }
        }
        self.rng = rng;
        if fails || is_cut { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }
}

impl FileChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => bytes.resize(*len, 0),
            Self::Write(at, new) => write(bytes, *at, new),
            Self::ZeroFrom(at) => bytes.iter_mut().skip(*at).for_each(|byte| *byte = 0),
        }
    }

    /// Applies a random part of the change, as a power cut does.
    fn apply_some(&self, bytes: &mut Vec<u8>, rng: &mut TestRng, percent: u64) {
        match self {
            Self::SetLen(len) => {
                if rng.chance(percent) {
                    bytes.resize(*len, 0);
                }
            }
            Self::ZeroFrom(at) => {
                let zeros = vec![0; bytes.len().saturating_sub(*at)];
                Self::Write(*at, zeros).apply_some(bytes, rng, percent);
            }
            Self::Write(at, new) => {
                let mut from = 0;
                while from < new.len() {
                    let sector_end = (at + from + 1).next_multiple_of(SECTOR) - at;
                    let to = sector_end.min(new.len());
                    if rng.chance(percent) {
                        write(bytes, at + from, new.get(from..to).unwrap_or_default());
                    }
                    from = to;
                }
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Add(name, at) => {
                names.insert(name.clone(), *at);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    if let Some(to) = bytes.get_mut(at..at + new.len()) {
        to.copy_from_slice(new);
    }
}

impl StoreDir for FaultyDisk {
    fn path(&self) -> &Path {
        Path::new("faulty")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.call(|disk| Ok(disk.names.keys().cloned().collect()))
    }

    fn read_via(&self, via: ReadVia, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.call(|disk| {
            let at = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
            disk.read(via, at, offset, len)
        })
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        self.call(|disk| {
            if disk.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            disk.count();
            disk.files.push(File::default());
            let at = disk.files.len() - 1;
            disk.rename(NameChange::Add(name.to_owned(), at));
            Ok(Box::new(FaultyFile { disk: self.clone(), at }) as Box<dyn StoreFile>)
        })
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        self.call(|disk| {
            let at = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
            Ok(Box::new(FaultyFile { disk: self.clone(), at }) as Box<dyn StoreFile>)
        })
    }

    fn open_reader(&self, name: &str) -> io::Result<Box<dyn StoreFileReader>> {
        self.call(|disk| {
            let at = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
            let file = FaultyFile { disk: self.clone(), at };
            Ok(Box::new(file) as Box<dyn StoreFileReader>)
        })
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.call(|disk| {
            let file = disk.named(name)?;
            file.content.truncate(len as usize);
            file.synced = file.content.clone();
            file.unsynced.clear();
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|disk| {
            let at = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            disk.count();
            disk.rename(NameChange::Remove(from.to_owned()));
            disk.rename(NameChange::Add(to.to_owned(), at));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|disk| {
            assert!(!disk.panics_on_remove, "the disk has gone mad");
            if disk.fails_removals {
                return Err(io::Error::other("the removal is refused"));
            }
            disk.named(name)?;
            disk.count();
            disk.rename(NameChange::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(|disk| {
            if disk.count() {
                return Err(io::Error::other("the power was cut"));
            }
            for change in std::mem::take(&mut disk.name_changes) {
                change.apply(&mut disk.synced_names);
            }
            Ok(())
        })
    }

    fn release(&self) {}
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    at: usize,
}

impl StoreFile for FaultyFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.call(|disk| {
            let offset = offset as usize;
            let is_cut = disk.count();
            let mut len = bytes.len();
            if is_cut {
                len = disk.rng.below(len as u64 + 1) as usize;
            }
            let fits = disk.free_bytes.map_or(len, |free| free.min(len));
            if let Some(free) = &mut disk.free_bytes {
                *free -= fits;
            }
            let written = bytes.get(..fits).unwrap_or_default();
            let file = disk.file(self.at)?;
            write(&mut file.content, offset, written);
            file.unsynced.push(FileChange::Write(offset, written.to_vec()));
            if fits < len {
                Err(io::ErrorKind::StorageFull.into())
            } else if is_cut {
                Err(io::Error::other("the power was cut"))
            } else {
                Ok(())
            }
        })
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.disk.call(|disk| disk.sync(self.at))
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.disk.call(|disk| {
            disk.count();
            let file = disk.file(self.at)?;
            file.content.resize(len as usize, 0);
            file.unsynced.push(FileChange::SetLen(len as usize));
            Ok(())
        })
    }

    fn zero_from(&mut self, offset: u64) -> io::Result<()> {
        self.disk.call(|disk| {
            disk.count();
            let change = FileChange::ZeroFrom(offset as usize);
            let file = disk.file(self.at)?;
            change.apply(&mut file.content);
            file.unsynced.push(change);
            Ok(())
        })
    }
}

impl StoreFileReader for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.disk.call(|disk| Ok(disk.file(self.at)?.content.len() as u64))
    }

    fn read_exact_via(&self, via: ReadVia, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.call(|disk| {
            let stored = disk.read(via, self.at, offset, bytes.len())?;
            if stored.len() < bytes.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.copy_from_slice(&stored);
            Ok(())
        })
    }
}
