//! Injects read errors of the disk into a child process, also while it runs.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::DaemonBuilder;

/// Preloaded into the process.
const SOURCE: &str = include_str!("process_disk.c");
/// Bytes of the control file.
const CONTROL_BYTES: usize = 256;

/// The read errors of one or more processes.
#[derive(Debug)]
pub struct ProcessDisk {
    shim: PathBuf,
    control: PathBuf,
}

impl ProcessDisk {
    /// Compiles the library into a directory; no read fails yet.
    ///
    /// # Errors
    ///
    /// Fails if there is no C compiler (`cc`).
    pub fn prepare(directory: &Path) -> io::Result<Self> {
        let source = directory.join("disk.c");
        let disk = Self { shim: directory.join("disk.so"), control: directory.join("disk") };
        fs::write(&source, SOURCE)?;
        fs::write(&disk.control, [0; CONTROL_BYTES])?;
        let compiled = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&disk.shim)
            .arg(source)
            .arg("-ldl")
            .output()?;
        if compiled.status.success() {
            Ok(disk)
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()))
        }
    }

    /// Starts a daemon with this disk.
    pub fn apply(&self, daemon: DaemonBuilder) -> DaemonBuilder {
        daemon
            .env("LD_PRELOAD", &self.shim.to_string_lossy())
            .env("PROCESS_DISK", &self.control.to_string_lossy())
    }

    /// Makes the next reads of files fail whose paths contain `path`, also in running processes.
    pub fn fail_reads(&self, path: &str, count: i32) {
        let mut bytes = [0; CONTROL_BYTES];
        bytes[4..4 + path.len()].copy_from_slice(path.as_bytes());
        let file = OpenOptions::new().write(true).open(&self.control).expect("the disk");
        file.write_all_at(&bytes[4..], 4).expect("the disk");
        file.write_all_at(&count.to_ne_bytes(), 0).expect("the disk");
    }

    /// Number of reads that will still fail.
    #[must_use]
    pub fn failing_reads(&self) -> i32 {
        let bytes = fs::read(&self.control).expect("the disk");
        i32::from_ne_bytes(bytes[..4].try_into().expect("4 bytes"))
    }
}
