//! Child processes, identified by pid and start time, which a watchdog kills with the cluster.
//!
//! Pids are reused. So each pid is stored with the start time of its process. A signal is sent through a
//! pidfd that was opened before the start time was compared.

mod stat;
mod watchdog;

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use self::stat::ProcessStat;
pub(crate) use self::watchdog::Watchdog;

/// Interval of polling a process that should exit.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Shell wrapper that waits for a line before it runs the program, so that the watchdog knows the
/// process first. Ignores SIGHUP of a closed terminal.
const WRAPPER: &str = r#"trap '' HUP; read -r go && exec "$@" </dev/null"#;

/// Unique identity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    /// Clock ticks between boot and its start.
    pub(crate) start: u64,
}

impl ProcessIdentity {
    /// True if it runs: not a zombie, and not another process with the same pid.
    pub(crate) fn is_alive(self) -> bool {
        self.stat().is_some_and(|stat| !stat.ended)
    }

    /// True if it is stopped by a signal.
    pub(crate) fn is_paused(self) -> bool {
        self.stat().is_some_and(|stat| stat.paused)
    }

    /// User and system CPU time so far, also of a zombie.
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        self.stat().map(|stat| stat.cpu)
    }

    fn stat(self) -> Option<ProcessStat> {
        ProcessStat::read(self.pid).ok().filter(|stat| stat.start == self.start)
    }

    /// Sends a signal to this process, never to another with the same pid.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the process is gone");
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        if !self.is_alive() {
            return Err(gone());
        }
        Ok(pidfd_send_signal(handle, signal)?)
    }
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) command: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) directory: &'a Path,
    /// File to which output and errors are appended.
    pub(crate) log: &'a Path,
    /// File for the output, if it is separate from the log.
    pub(crate) output: Option<&'a Path>,
}

/// A started or attached process.
#[derive(Debug)]
pub(crate) struct Process {
    identity: ProcessIdentity,
    child: Option<Child>,
}

impl Process {
    /// Starts a program in its own process group; `watchdog` kills it when this process is gone.
    pub(crate) fn start(program: &Program<'_>, watchdog: &Watchdog) -> io::Result<Self> {
        let log = append(program.log)?;
        let output = match program.output {
            Some(path) => File::create(path)?,
            None => log.try_clone()?,
        };
        let mut child = Command::new("/bin/sh")
            .args(["-c", WRAPPER, "sh"])
            .arg(program.command)
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(program.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(log)
            .spawn()?;
        let stdin = child.stdin.take();
        let identity =
            ProcessIdentity { pid: child.id(), start: ProcessStat::read(child.id())?.start };
        // From here on dropping the value kills the process.
        let process = Self { identity, child: Some(child) };
        watchdog.add(identity)?;
        if let Some(mut stdin) = stdin {
            stdin.write_all(b"go\n")?;
        }
        Ok(process)
    }

    /// Returns a process that already runs.
    pub(crate) const fn attached(identity: ProcessIdentity) -> Self {
        Self { identity, child: None }
    }

    pub(crate) const fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }

    /// Waits until it exits; returns false after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.reap();
        true
    }

    /// Kills it, paused or not, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        match self.identity.signal(Signal::KILL) {
            Ok(()) => {}
            Err(_) if !self.is_alive() => {}
            Err(error) => return Err(error),
        }
        if self.wait(Duration::from_secs(30)) {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// True if it exited with status 0; `None` if it runs or is not a child of this process.
    pub(crate) fn reap(&mut self) -> Option<bool> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        Some(status.success())
    }

    /// Lets it run without this value.
    pub(crate) fn detach(mut self) {
        self.child = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.is_some() {
            let _ = self.kill();
        }
    }
}

fn append(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(log)
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 30;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests;
