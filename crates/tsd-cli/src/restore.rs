//! `tsdb restore`: makes a data directory from a snapshot.
//!
//! The restore writes all files below `restoring` in the data directory, verifies them, and then renames them. While
//! that directory exists, no store can be opened there, so an interrupted restore never looks like a store. The
//! restored store has no log and no mark of a log. Its next start begins a new log after the last commit time of the
//! snapshot.

use std::{
    cell::Cell,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde_json::json;
use tsd_files::{
    DirectoryLock, ListedFile, SnapshotError, SnapshotList, TransferMeter, copy_file,
    sync_directory,
};
use tsd_storage::FileChecksum;
use tsd_storage_embedded::verify_restored;

use crate::{
    args::RestoreArgs,
    console::Console,
    data_directory::{self, LOCK_FILE, MARK_FILE, PARTS, RESTORING},
    output::utc,
    print_lines,
    snapshot::require_embedded,
    tell,
    tool::prepare,
};

/// Restores a snapshot.
pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    let config = args.overrides.load_tool("tsdb restore without --log-level", "error")?;
    let (_, settings) = prepare(config)?;
    require_embedded(&settings, "restore")?;
    let data = &settings.storage.data_directory;
    let list = SnapshotList::read(&args.snapshot)?;
    let is_new = !data.exists();
    let Some(_lock) = claim(data)? else {
        bail!("{} is not empty; name a missing or empty directory (--data)", data.display());
    };
    let console = Console::new("restore", args.json, true);
    let restored = restore(args, &list, data, &console).inspect_err(|_| {
        // The next attempt removes files that cannot be removed now.
        let _ = discard(data);
        let _ = fs::remove_file(data.join(LOCK_FILE));
        if is_new {
            let _ = fs::remove_dir(data);
        }
    });
    console.close()?;
    if let Err(SnapshotError::Cancelled) = restored {
        console.stop.check("the restored files were removed")?;
    }
    let bytes = restored?;
    if !list.damaged.is_empty() {
        tell!(
            "tsdb: the snapshot lacks the lost contents of damaged files: {}; `tsdb quarantine list` describes \
             them",
            list.damaged.join(", ")
        );
    }
    let created = Timestamp::from_millisecond(list.created_ms)?;
    if args.json {
        let report = json!({
            "data": data.display().to_string(),
            "files": list.files.len(),
            "bytes": list.bytes(),
            "linkedBytes": bytes.linked,
            "copiedBytes": bytes.copied,
            "createdMs": list.created_ms,
            "damaged": list.damaged,
        });
        print_lines(&format!("{report}\n"))?;
    } else {
        print_lines(&format!(
            "Restored the snapshot of {} to {}: {} files, {}, verified\n",
            utc(created),
            data.display(),
            list.files.len(),
            HumanBytes(list.bytes()),
        ))?;
    }
    Ok(())
}

/// How the files were restored.
#[derive(Debug, Default)]
struct RestoredBytes {
    linked: u64,
    copied: u64,
}

/// Shows the transferred bytes; a signal ends the transfer.
struct Meter<'c> {
    console: &'c Console,
    moved: Cell<u64>,
    total: u64,
}

impl<'c> Meter<'c> {
    /// Begins a stage of `total` bytes.
    fn begin(console: &'c Console, stage: &'static str, total: u64) -> Self {
        console.begin(stage);
        console.show_bytes(0, total, "");
        Self { console, moved: Cell::new(0), total }
    }
}

impl TransferMeter for Meter<'_> {
    fn moved(&self, bytes: u64) -> Result<(), SnapshotError> {
        self.moved.set(self.moved.get() + bytes);
        self.console.show_bytes(self.moved.get(), self.total, "");
        let is_stopped = self.console.stop.flag.load(Ordering::Relaxed);
        if is_stopped { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }
}

/// Locks the data directory and removes the files of an interrupted restore; `None` if the directory is not empty.
fn claim(data: &Path) -> anyhow::Result<Option<DirectoryLock>> {
    let using = || format!("cannot use {}", data.display());
    fs::create_dir_all(data).with_context(using)?;
    let names = names_in(data).with_context(using)?;
    let is_interrupted = names.iter().any(|name| name == RESTORING);
    let is_ours = |name: &String| {
        name == LOCK_FILE
            || name == MARK_FILE
            || name == "lost+found"
            || (is_interrupted && (name == RESTORING || PARTS.contains(&name.as_str())))
    };
    if !names.iter().all(is_ours) {
        return Ok(None);
    }
    let lock = data_directory::lock(data)?;
    if is_interrupted {
        tell!("tsdb: removing the files of an interrupted restore in {}", data.display());
        discard(data).with_context(using)?;
    }
    Ok(Some(lock))
}

/// Removes the files of a restore. The directory that marks it as unfinished is the last.
fn discard(data: &Path) -> io::Result<()> {
    PARTS.iter().chain(&[RESTORING]).try_for_each(|name| remove(&data.join(name)))
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn restore(
    args: &RestoreArgs,
    list: &SnapshotList,
    data: &Path,
    console: &Console,
) -> Result<RestoredBytes, SnapshotError> {
    let restoring = data.join(RESTORING);
    fs::create_dir(&restoring).map_err(SnapshotError::io("creating", &restoring))?;
    sync(data)?;
    let meter = Meter::begin(console, "restore", list.bytes());
    let mut bytes = RestoredBytes::default();
    for file in &list.files {
        let linked = restore_file(args, file, &restoring, &meter)?;
        *(if linked { &mut bytes.linked } else { &mut bytes.copied }) += file.bytes;
    }
    let meter = Meter::begin(console, "verify", list.bytes());
    verify_restored(&restoring, &list.files, &meter)?;
    data_directory::write_schema(&restoring, list.schema)
        .map_err(SnapshotError::io("writing the key layout to", &restoring))?;
    sync_directory(&restoring)?;
    for name in PARTS {
        let (from, to) = (restoring.join(name), data.join(name));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(SnapshotError::io("renaming to", &to))?,
        }
    }
    sync(data)?;
    fs::remove_dir(&restoring).map_err(SnapshotError::io("removing", &restoring))?;
    sync(data)?;
    Ok(bytes)
}

/// Links or copies a file; returns true if it is linked.
fn restore_file(
    args: &RestoreArgs,
    file: &ListedFile,
    restoring: &Path,
    meter: &dyn TransferMeter,
) -> Result<bool, SnapshotError> {
    let from = args.snapshot.join(&file.path);
    let to = restoring.join(&file.path);
    let above = to.parent().unwrap_or(restoring);
    fs::create_dir_all(above).map_err(SnapshotError::io("creating", above))?;
    let damaged = |what: String| SnapshotError::DamagedFile { path: from.clone(), what };
    let source = File::open(&from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => damaged("it is missing".to_owned()),
        _ => SnapshotError::io("opening", from.clone())(error),
    })?;
    let is_immutable = !matches!(file.checksum, FileChecksum::Crc32c(_));
    if args.link && is_immutable && fs::hard_link(&from, &to).is_ok() {
        let size = source.metadata().map_err(SnapshotError::io("reading", from.clone()))?.len();
        if size != file.bytes {
            return Err(damaged(format!("it has {size} bytes, not {}", file.bytes)));
        }
        meter.moved(file.bytes)?;
        return Ok(true);
    }
    let crc = copy_file((&source, &from), &to, file.bytes, meter)?;
    match file.checksum {
        FileChecksum::Crc32c(expected) if expected != crc => {
            Err(damaged("its checksum is wrong".to_owned()))
        }
        _ => Ok(false),
    }
}

fn sync(directory: &Path) -> Result<(), SnapshotError> {
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(SnapshotError::io("syncing", PathBuf::from(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_transfer() {
        let console = Console::new("restore", false, false);
        assert!(Meter::begin(&console, "restore", 2).moved(1).is_ok());
        console.stop.flag.store(true, Ordering::Relaxed);
        let ended = Meter::begin(&console, "restore", 2).moved(1);
        assert!(matches!(ended, Err(SnapshotError::Cancelled)), "{ended:?}");
    }
}
