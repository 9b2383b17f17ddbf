//! Processes: started under watch, signalled only while they are surely ours.
//!
//! A number alone says little: processes end and numbers are used again. Each is kept with the time
//! its process started, and a signal goes through a handle that was opened before that time was
//! compared.

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

use self::stat::Stat;
pub(crate) use self::watchdog::Watchdog;

/// How often a process that is to end is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for a word before the program runs, so that nothing runs which the watchdog does not know.
/// A terminal that closes ends nothing.
const GATE: &str = r#"trap '' HUP; read -r go && exec "$@" </dev/null"#;

/// Which process, for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// Ticks of the system's clock before it started.
    pub(crate) start: u64,
}

impl Identity {
    /// Whether it runs: another process of that number does not count, nor one that ended and waits
    /// to be reaped.
    pub(crate) fn is_alive(self) -> bool {
        self.stat().is_some_and(|stat| !stat.ended)
    }

    /// Whether it is held by a signal.
    pub(crate) fn is_paused(self) -> bool {
        self.stat().is_some_and(|stat| stat.paused)
    }

    /// User and system time so far, also when it has just ended.
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        self.stat().map(|stat| stat.cpu)
    }

    fn stat(self) -> Option<Stat> {
        Stat::read(self.pid).ok().filter(|stat| stat.start == self.start)
    }

    /// Sends a signal, to this very process or to none.
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

/// What to run.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) command: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) directory: &'a Path,
    /// Output and errors are added to it.
    pub(crate) log: &'a Path,
    /// Output alone goes here.
    pub(crate) output: Option<&'a Path>,
}

/// A process that we started, or one that was left running.
#[derive(Debug)]
pub(crate) struct Process {
    identity: Identity,
    child: Option<Child>,
}

impl Process {
    /// Starts a program in a group of its own; `watchdog` ends it when this process is gone.
    pub(crate) fn start(program: &Program<'_>, watchdog: &Watchdog) -> io::Result<Self> {
        let log = append(program.log)?;
        let output = match program.output {
            Some(path) => File::create(path)?,
            None => log.try_clone()?,
        };
        let mut child = Command::new("/bin/sh")
            .args(["-c", GATE, "sh"])
            .arg(program.command)
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(program.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(log)
            .spawn()?;
        let gate = child.stdin.take();
        let identity = Identity { pid: child.id(), start: Stat::read(child.id())?.start };
        // From here on it is ended when it is dropped.
        let process = Self { identity, child: Some(child) };
        watchdog.add(identity)?;
        if let Some(mut gate) = gate {
            gate.write_all(b"go\n")?;
        }
        Ok(process)
    }

    /// One that runs already.
    pub(crate) const fn found(identity: Identity) -> Self {
        Self { identity, child: None }
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }

    /// Waits until it ended; says whether it did.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
        self.reap();
        true
    }

    /// Ends it at once and waits until it is gone; one that is paused ends too.
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

    /// How it ended: `Some(true)` is well. `None` if it runs, or was not ours to ask.
    pub(crate) fn reap(&mut self) -> Option<bool> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        Some(status.success())
    }

    /// Lets it run on without us.
    pub(crate) fn leave(mut self) {
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
