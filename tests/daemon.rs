//! The built `tsdb` as a process of its own, on a free port.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Path of the binary under test.
pub(crate) const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<Value>>>,
}

/// How a daemon is started.
pub(crate) struct Start {
    data: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Start {
    /// On the data directory `data`.
    pub(crate) fn on(data: &Path) -> Self {
        Self { data: data.to_owned(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// With more arguments.
    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&a| a.to_owned()));
        self
    }

    /// With an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(TSDB);
        command
            .args(["tsd", "--port", "0", "--bind", "127.0.0.1", "--log-format", "json", "--data"])
            .arg(&self.data)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it and waits until it serves.
    pub(crate) fn serve(self) -> Daemon {
        let mut child = self.command().spawn().expect("start tsdb");
        let stderr = child.stderr.take().expect("standard error");
        let log = Arc::new(Mutex::new(Vec::new()));
        thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    log.lock().expect("log").push(event);
                }
            }
        });
        let address = wait_for(Duration::from_mins(1), || {
            let events = log.lock().expect("log");
            if let Some(ready) = events.iter().find(|e| e["message"] == "ready to serve") {
                return Some(ready["address"].as_str()?.parse().expect("an address"));
            }
            drop(events);
            let ended = child.try_wait().expect("state of tsdb");
            assert!(ended.is_none(), "tsdb ended: {ended:?} {:?}", log.lock().expect("log"));
            None
        });
        Daemon { child, address: address.expect("tsdb serves within a minute"), log }
    }

    /// Runs it to its end, which must come by itself; returns how it ended and what it said.
    pub(crate) fn fail(self) -> (ExitStatus, String) {
        let output = self.command().output().expect("run tsdb");
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Daemon {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Log events with that message.
    pub(crate) fn events(&self, message: &str) -> Vec<Value> {
        let log = self.log.lock().expect("log");
        log.iter().filter(|e| e["message"] == message).cloned().collect()
    }

    /// Log lines at that level.
    pub(crate) fn at_level(&self, level: &str) -> Vec<Value> {
        let log = self.log.lock().expect("log");
        log.iter().filter(|e| e["level"] == level).cloned().collect()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill");
        assert!(status.success());
    }

    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_for(Duration::from_mins(1), || self.child.try_wait().expect("state of tsdb"))
            .expect("tsdb ends within a minute")
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer or time is up.
pub(crate) fn wait_for<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
