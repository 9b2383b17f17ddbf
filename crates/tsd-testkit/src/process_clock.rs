//! Gives a child process its own wall clock, which can be set while the process runs.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::DaemonBuilder;

/// Preloaded into the process.
const SOURCE: &str = include_str!("process_clock.c");

/// The clock of one or several processes.
#[derive(Debug)]
pub struct ProcessClock {
    shim: PathBuf,
    offset: PathBuf,
}

impl ProcessClock {
    /// Compiles the clock into a directory, with the system's time.
    ///
    /// # Errors
    ///
    /// Fails if there is no C compiler (`cc`).
    pub fn prepare(directory: &Path) -> io::Result<Self> {
        let source = directory.join("clock.c");
        let clock = Self { shim: directory.join("clock.so"), offset: directory.join("clock") };
        fs::write(&source, SOURCE)?;
        fs::write(&clock.offset, 0_i64.to_ne_bytes())?;
        let compiled = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&clock.shim)
            .arg(source)
            .arg("-ldl")
            .output()?;
        if compiled.status.success() {
            Ok(clock)
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()))
        }
    }

    /// Starts a daemon with this clock.
    pub fn apply(&self, daemon: DaemonBuilder) -> DaemonBuilder {
        daemon
            .env("LD_PRELOAD", &self.shim.to_string_lossy())
            .env("PROCESS_CLOCK", &self.offset.to_string_lossy())
    }

    /// Sets the offset from the system's time, also for running processes.
    pub fn set_offset(&self, offset_secs: i64) {
        let file = OpenOptions::new().write(true).open(&self.offset).expect("the clock");
        let nanoseconds = offset_secs * 1_000_000_000;
        file.write_all_at(&nanoseconds.to_ne_bytes(), 0).expect("the clock");
    }
}
