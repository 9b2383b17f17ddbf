//! Runs `tsdb` as a process whose error output is watched while it runs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::bench_binary;

use crate::{TSDB, TestResult, client::ClientSettings};

/// Longest wait for a text or an exit. Each run prints how long it took.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A command with the settings.
pub(crate) fn command(settings: &ClientSettings, file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bench_binary(TSDB));
    command.args(arguments).arg("--config").arg(file);
    command.envs(settings.environment.iter().cloned());
    command
}

/// A daemon on a free port, with its data in `directory`.
pub(crate) fn daemon(settings: &ClientSettings, file: &Path, directory: &Path) -> Command {
    let data = directory.join("data").display().to_string();
    let arguments = ["tsd", "--port", "0", "--bind", "127.0.0.1", "--data", &data];
    let mut command = command(settings, file, &arguments);
    command.env("TSD_CLUSTER_BIND", "127.0.0.1:0");
    command
}

/// A running program. It is killed when the value is dropped.
pub(crate) struct Watched {
    child: Child,
    log: PathBuf,
    begun: Instant,
}

impl Watched {
    /// Starts the program with its error output in the file.
    pub(crate) fn start(mut command: Command, log: &Path) -> TestResult<Self> {
        let output = File::create(log)?;
        let begun = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn()?;
        Ok(Self { child, log: log.to_owned(), begun })
    }

    /// Time since the start.
    pub(crate) fn running(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The error output so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until the error output has all texts; returns the time since the start. Fails if the program exits before.
    pub(crate) fn await_texts(&mut self, texts: &[&str]) -> TestResult<Duration> {
        let end = Instant::now() + PATIENCE;
        loop {
            let is_over = self.child.try_wait()?.is_some() || Instant::now() >= end;
            let log = self.log();
            match texts.iter().find(|text| !log.contains(**text)) {
                None => return Ok(self.begun.elapsed()),
                Some(missing) if is_over => {
                    return Err(format!("{missing:?} is not in: {}", one_line(&log)).into());
                }
                Some(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Waits for the exit; returns the time since the start.
    pub(crate) fn await_exit(&mut self) -> TestResult<(ExitStatus, Duration)> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, self.begun.elapsed()));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("it still runs after {PATIENCE:?}: {}", one_line(&self.log())).into())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Fails if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bound of a line in characters.
const LINE: usize = 800;

/// The end of an output, in one line.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines[lines.len().saturating_sub(4)..].join(" / ").replace('|', "¦");
    let skipped = line.chars().count().saturating_sub(LINE);
    line.chars().skip(skipped).collect()
}
