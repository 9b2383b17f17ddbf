//! A process that outlives ours only to clean up after it.
//!
//! A value's `drop` does not run when its process is killed. The end of a pipe is always seen.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use super::Identity;

/// Knows what must not outlive this process.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Watchdog {
    /// Starts it; `temporary` is removed with the processes.
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

    pub(crate) fn add(&self, process: Identity) -> io::Result<()> {
        self.tell(&format!("+ {} {}\n", process.pid, process.start))
    }

    /// Forgets one that ended.
    pub(crate) fn remove(&self, process: Identity) -> io::Result<()> {
        self.tell(&format!("- {}\n", process.pid))
    }

    /// Ends it alone: all runs on.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.tell("leave\n")?;
        self.child.wait().map(|_| ())
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *pipe {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Watchdog {
    /// Whatever it knows ends.
    fn drop(&mut self) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.child.wait();
    }
}
