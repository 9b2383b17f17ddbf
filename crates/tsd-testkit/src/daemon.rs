//! The `tsdb` daemon as a child process on a free port.

use parking_lot::Mutex;
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use serde_json::Value;

use crate::poll::wait_for;

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    process: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<Value>>>,
}

/// Arguments and environment of a daemon.
#[derive(Debug)]
#[must_use]
pub struct DaemonBuilder {
    binary: PathBuf,
    data: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Listens on 127.0.0.1 only.
    loopback: bool,
    port: String,
    /// Network namespace to run in.
    namespace: Option<String>,
}

/// The program of a bench: the value of `TSDB_BINARY`, else `built`.
#[must_use]
pub fn bench_binary(built: &str) -> String {
    std::env::var("TSDB_BINARY").unwrap_or_else(|_| built.to_owned())
}

impl DaemonBuilder {
    /// A daemon of the program `binary` on the data directory `data`.
    ///
    /// Tests and benches of the root package pass `env!("CARGO_BIN_EXE_tsdb")`, which cargo sets for
    /// them only.
    pub fn new(binary: &str, data: &Path) -> Self {
        Self {
            binary: binary.into(),
            data: data.to_owned(),
            arguments: Vec::new(),
            // Several daemons of a cluster run on one host.
            environment: vec![("TSD_CLUSTER_BIND".to_owned(), "127.0.0.1:0".to_owned())],
            loopback: true,
            port: "0".to_owned(),
            namespace: None,
        }
    }

    /// Runs the daemon in a network namespace. It listens on all addresses of it.
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self.without_bind()
    }

    /// A daemon of a bench. The environment variable `TSDB_BINARY` names its program, to measure
    /// another build with the same load; `built` is the default.
    pub fn of_bench(built: &str, data: &Path) -> Self {
        Self::new(&bench_binary(built), data)
    }

    /// Listens on this port instead of a free one.
    pub fn port(mut self, port: &str) -> Self {
        port.clone_into(&mut self.port);
        self
    }

    /// Leaves the addresses to listen on to the environment and the defaults.
    pub fn without_bind(mut self) -> Self {
        self.loopback = false;
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&a| a.to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = match &self.namespace {
            // `ip` becomes the program, with the same process id.
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command
            .args(["tsd", "--port", &self.port, "--log-format", "json", "--data"])
            .arg(&self.data)
            .args(if self.loopback { &["--bind", "127.0.0.1"][..] } else { &[] })
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Starts the daemon and waits until it serves.
    #[must_use]
    pub fn start(self) -> Daemon {
        let (log, started) = self.try_start();
        started.unwrap_or_else(|exit| panic!("tsdb exited: {exit:?} {log}"))
    }

    /// Starts the daemon and waits until it serves or exits. Returns its log so far, and its exit
    /// status if it exited.
    pub fn try_start(self) -> (String, Result<Daemon, ExitStatus>) {
        let mut process = self.command().spawn().expect("start tsdb");
        let stderr = process.stderr.take().expect("standard error");
        let log = Arc::new(Mutex::new(Vec::new()));
        let reader = thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    log.lock().push(event);
                }
            }
        });
        let outcome = wait_for(|| {
            let events = log.lock();
            if let Some(ready) = events.iter().find(|e| e["message"] == "ready to serve") {
                return Some(Ok(ready["address"].as_str()?.parse().expect("an address")));
            }
            drop(events);
            process.try_wait().expect("state of tsdb").map(Err)
        });
        let outcome = outcome.expect("tsdb serves within a minute");
        if outcome.is_err() {
            reader.join().expect("no panic");
        }
        let text = text(&log.lock());
        let started = outcome.map(|address| Daemon { process, address, log });
        (text, started)
    }

    /// Runs a daemon that is expected to exit by itself; returns its status and standard error.
    #[must_use]
    pub fn run_to_exit(self) -> (ExitStatus, String) {
        let output = self.command().output().expect("run tsdb");
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Daemon {
    /// Address of its listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// All lines of its standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        text(&self.log.lock())
    }

    /// Log events with this message.
    #[must_use]
    pub fn events(&self, message: &str) -> Vec<Value> {
        self.events_where("message", message)
    }

    /// Waits for a log event with this message that `accept` accepts. A thread reads the log, so an
    /// event may arrive later than a reply that the daemon sent after it.
    ///
    /// # Panics
    ///
    /// If no such event arrives within a minute.
    #[must_use]
    pub fn wait_for_event(&self, message: &str, accept: impl Fn(&Value) -> bool) -> Value {
        wait_for(|| self.events(message).into_iter().find(&accept))
            .unwrap_or_else(|| panic!("no such event: {:?}", self.events(message)))
    }

    /// Log events at this level.
    #[must_use]
    pub fn events_at_level(&self, level: &str) -> Vec<Value> {
        self.events_where("level", level)
    }

    fn events_where(&self, field: &str, value: &str) -> Vec<Value> {
        let log = self.log.lock();
        log.iter().filter(|event| event[field] == value).cloned().collect()
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill");
        assert!(status.success());
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }

    /// Waits for the exit.
    #[must_use]
    pub fn wait(mut self) -> ExitStatus {
        wait_for(|| self.process.try_wait().expect("state of tsdb"))
            .expect("tsdb exits within a minute")
    }

    /// Sends SIGTERM and waits for the exit.
    #[must_use]
    pub fn terminate(self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }
}

/// The lines of a log.
fn text(log: &[Value]) -> String {
    let line = |event: &Value| event.as_str().map_or_else(|| event.to_string(), str::to_owned);
    log.iter().map(line).collect::<Vec<String>>().join("\n")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
