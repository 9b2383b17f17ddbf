//! A KDC without a cluster, for tests of Kerberos alone.

use std::{
    net::{Ipv4Addr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    error::ClusterError,
    node::Node,
    ports::Port,
    process::{Process, Program, Watchdog, tail},
    realm::Realm,
    security::Kerberos,
};

/// Interval of polling a starting KDC.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest duration of its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running KDC with its realm. It is killed when the value is dropped or this process is killed.
///
/// ```no_run
/// # fn example(directory: &std::path::Path) -> Result<(), cluster::ClusterError> {
/// use cluster::{Kdc, Kerberos};
///
/// let mut kdc = Kdc::start(directory, &Kerberos::new())?;
/// kdc.realm().kinit(Kerberos::USER, &directory.join("cache"), None)?;
/// kdc.stop()?;
/// kdc.restart()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Kdc {
    // Fields are dropped in this order: the process before the watchdog.
    process: Option<Process>,
    watchdog: Watchdog,
    realm: Realm,
    directory: std::path::PathBuf,
    /// Reserves the port while the KDC is stopped.
    port: Port,
}

impl Kdc {
    /// Creates a realm in `directory/kerberos` and starts its KDC.
    ///
    /// # Errors
    ///
    /// If MIT Kerberos is not installed, or the KDC does not listen after 30 s.
    pub fn start(directory: &Path, kerberos: &Kerberos) -> Result<Self, ClusterError> {
        let directory = directory.canonicalize().map_err(ClusterError::file("find", directory))?;
        let port = Port::reserve().map_err(|source| ClusterError::NoPort { source })?;
        let realm = Realm::new(&directory.join("kerberos"), kerberos, port.number());
        realm.create()?;
        let what = "a watchdog".to_owned();
        let watchdog =
            Watchdog::start(None).map_err(|source| ClusterError::Spawn { what, source })?;
        let mut kdc = Self { process: None, watchdog, realm, directory, port };
        kdc.restart()?;
        Ok(kdc)
    }

    /// Its realm: krb5.conf, keytabs, principals.
    #[must_use]
    pub const fn realm(&self) -> &Realm {
        &self.realm
    }

    /// Kills the KDC. Its port refuses connections until [`Self::restart`].
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn stop(&mut self) -> Result<(), ClusterError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill().map_err(|source| ClusterError::Signal { node: Node::Kdc, source })?;
        // Fails only if the watchdog is gone.
        let _ = self.watchdog.remove(process.identity());
        Ok(())
    }

    /// Stops the KDC without closing its sockets (`SIGSTOP`): requests get no answer.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn pause(&self) -> Result<(), ClusterError> {
        self.signal(Signal::STOP)
    }

    /// Resumes the KDC after [`Self::pause`].
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self) -> Result<(), ClusterError> {
        self.signal(Signal::CONT)
    }

    /// Starts the KDC again on its port and database, if it is stopped.
    ///
    /// # Errors
    ///
    /// If the KDC does not listen after 30 s.
    pub fn restart(&mut self) -> Result<(), ClusterError> {
        if self.process.as_ref().is_some_and(Process::is_alive) {
            return Ok(());
        }
        let (command, arguments, environment) = self.realm.kdc_command()?;
        let log = self.directory.join("kerberos").join("kdc.log");
        let program = Program {
            command: &command,
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment,
            directory: &self.directory,
            log: &log,
            output: None,
        };
        let process = Process::start(&program, &self.watchdog)
            .map_err(|source| ClusterError::Spawn { what: Node::Kdc.to_string(), source })?;
        let process = self.process.insert(process);
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let last = match TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number())) {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            };
            if !process.is_alive() {
                return Err(ClusterError::Exited { node: Node::Kdc, tail: tail(&log), log });
            }
            if Instant::now() >= end {
                let (what, limit) = (Node::Kdc.to_string(), START_TIMEOUT);
                return Err(ClusterError::StartTimeout {
                    what,
                    limit,
                    last,
                    tail: tail(&log),
                    log,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), ClusterError> {
        let node = Node::Kdc;
        let process = self.process.as_ref().filter(|process| process.is_alive());
        let process = process.ok_or(ClusterError::WrongState { node, state: "does not run" })?;
        process.identity().signal(signal).map_err(|source| ClusterError::Signal { node, source })
    }
}
