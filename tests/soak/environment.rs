//! Environment of a run: a small disk, a separate clock, and the daemon on them.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use tsd_testkit::{
    Daemon, DaemonBuilder, ProcessClock, SplitMix64,
    process::{count_files, directory_bytes},
};

const RESERVE_BYTES: u64 = 8 << 20;

/// Damage.
pub(crate) struct FlippedByte {
    /// Name of the file.
    name: String,
    pub(crate) at: u64,
}

impl FlippedByte {
    /// The file as errors name it.
    pub(crate) fn file(&self) -> String {
        format!("t.tsdb/{} ", self.name)
    }
}

/// Directories and tools of a run.
pub(crate) struct Environment {
    root: tempfile::TempDir,
    /// True if the disk is a separate file system.
    pub(crate) has_disk: bool,
    /// `None` if the daemon's clock cannot be set.
    pub(crate) clock: Option<ProcessClock>,
    memtable_bytes: u64,
}

impl Environment {
    /// Mounts a disk of this size and compiles the clock; prints which of these is not possible.
    pub(crate) fn prepare(tsdb: &str, disk_bytes: u64, memtable_bytes: u64) -> Self {
        let root = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(root.path().join("disk")).expect("a directory");
        let mut environment = Self { root, has_disk: false, clock: None, memtable_bytes };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={disk_bytes}"), "tmpfs"])
            .arg(environment.disk())
            .output();
        environment.has_disk = mounted.is_ok_and(|mounted| mounted.status.success());
        if !environment.has_disk {
            println!("soak: no right to mount a tmpfs, the disk is not filled");
        }
        match ProcessClock::prepare(environment.root.path()) {
            Ok(clock) => environment.clock = Some(clock),
            Err(error) => println!("soak: no C compiler, the clock is not set ({error})"),
        }
        // `exec`, so that signals reach the daemon.
        let script = format!("#!/bin/sh\nulimit -n \"$SOAK_FILES\"\nexec {tsdb} \"$@\"\n");
        fs::write(environment.script(), script).expect("a file");
        fs::set_permissions(environment.script(), fs::Permissions::from_mode(0o755))
            .expect("a mode");
        environment
    }

    fn disk(&self) -> PathBuf {
        self.root.path().join("disk")
    }

    fn script(&self) -> PathBuf {
        self.root.path().join("tsdb")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.disk().join("data")
    }

    /// Starts the daemon with this limit on open files.
    pub(crate) fn start(&self, open_files: u64) -> Daemon {
        let script = self.script();
        let mut daemon = DaemonBuilder::new(&script.to_string_lossy(), &self.data())
            .args(&["--log-level", "warn,tsd_cli=info"])
            .env("SOAK_FILES", &open_files.to_string())
            .env("TSD_STORAGE_RESERVE", &RESERVE_BYTES.to_string())
            .env("TSD_STORAGE_MEMTABLE_SIZE", &self.memtable_bytes.to_string())
            .env("TSD_STORAGE_LOG_SEGMENT_SIZE", &(1 << 20).to_string())
            // Small, so that blocks are read from the disk again.
            .env("TSD_STORAGE_CACHE_SIZE", &(1 << 20).to_string())
            .env("TSD_HTTP_QUERY_ALLOW_DELETE", "true");
        if let Some(clock) = &self.clock {
            daemon = clock.apply(daemon);
        }
        daemon.start()
    }

    /// Sets the offset of the daemon's wall clock, also while it runs.
    pub(crate) fn set_clock(&self, offset_secs: i64) {
        if let Some(clock) = &self.clock {
            clock.set_offset(offset_secs);
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.disk()).expect("a file system");
        stat.f_bavail * stat.f_frsize
    }

    /// Fills the disk with another file, down to half of the reserve.
    pub(crate) fn fill(&self) {
        let path = self.disk().join("filler");
        let mut filler = File::options().create(true).append(true).open(path).expect("a file");
        let chunk = vec![0; 64 << 10];
        while self.free_bytes() > RESERVE_BYTES / 2 && filler.write_all(&chunk).is_ok() {}
    }

    pub(crate) fn unfill(&self) {
        fs::remove_file(self.disk().join("filler")).expect("the filler");
    }

    /// Directory of the parts of the data table.
    fn parts(&self) -> PathBuf {
        self.data().join("store/points/t.tsdb")
    }

    /// Names of the live files with points, the largest first.
    fn live_files(&self) -> Vec<String> {
        let files = fs::read_dir(self.parts()).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            files.filter_map(|file| file.file_name().into_string().ok()).collect();
        names.retain(|name| Path::new(name).extension().is_some_and(|kind| kind == "part"));
        let bytes = |name: &String| fs::metadata(self.parts().join(name)).map_or(0, |m| m.len());
        names.sort_by_key(|name| std::cmp::Reverse(bytes(name)));
        names
    }

    /// Flips a byte of a file of points: of the largest file, or of any.
    pub(crate) fn flip(&self, random: &mut SplitMix64) -> Option<FlippedByte> {
        let files = self.live_files();
        let most = if random.below(2) == 0 { 1 } else { files.len().max(1) as u64 };
        let name = files.get(random.below(most) as usize)?.clone();
        let path = self.parts().join(&name);
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let at = random.below(file.metadata().ok()?.len().max(1));
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).ok()?;
        file.write_all_at(&[byte[0] ^ 0x20], at).ok()?;
        Some(FlippedByte { name, at })
    }

    /// Number of files of the daemon, and their size.
    pub(crate) fn files(&self) -> (u64, u64) {
        (count_files(&self.data()), directory_bytes(&self.data()))
    }

    /// Keeps disk and data for an investigation; returns the directory.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.has_disk = false;
        self.root.disable_cleanup(true);
        self.root.path().to_owned()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.has_disk {
            let _ = Command::new("umount").arg("-l").arg(self.disk()).status();
        }
    }
}
