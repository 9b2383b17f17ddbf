//! A process that kills the cluster's processes when this process is gone.
//!
//! When a process is killed, `drop` does not run, but the kernel always closes its end of a pipe.

use parking_lot::Mutex;
use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use super::ProcessIdentity;

/// Handle of the watchdog process.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Watchdog {
    /// Starts the watchdog; it also removes the directory `temporary`.
    pub(crate) fn start(temporary: Option<&Path>) -> io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", include_str!("watchdog.sh"), "sh"])
            .arg(temporary.map_or_else(|| OsStr::new(""), Path::as_os_str))
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = Mutex::new(child.stdin.take());
        Ok(Self { child, pipe })
    }

    pub(crate) fn add(&self, process: ProcessIdentity) -> io::Result<()> {
        self.send(&format!("+ {} {}\n", process.pid, process.start))
    }

    /// Removes a process that exited.
    pub(crate) fn remove(&self, process: ProcessIdentity) -> io::Result<()> {
        self.send(&format!("- {}\n", process.pid))
    }

    /// Stops the watchdog only; all processes keep running.
    pub(crate) fn detach(&mut self) -> io::Result<()> {
        self.send("detach\n")?;
        self.child.wait().map(|_| ())
    }

    fn send(&self, line: &str) -> io::Result<()> {
        let mut pipe = self.pipe.lock();
        match &mut *pipe {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Watchdog {
    /// Kills all watched processes.
    fn drop(&mut self) {
        *self.pipe.lock() = None;
        let _ = self.child.wait();
    }
}
