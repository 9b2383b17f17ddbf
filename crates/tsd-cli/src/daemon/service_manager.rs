//! Reports the state of the daemon to the service manager that started it, as systemd's `sd_notify` does.
//!
//! The protocol is a datagram of lines to the socket that `NOTIFY_SOCKET` names. Without the variable, nothing is
//! sent.

#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        net::{SocketAddr, UnixDatagram},
    },
    process,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// How long a report may wait for a manager that does not read.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// Time for the exit after the last flush.
const EXIT_TIME: Duration = Duration::from_secs(10);

/// The service manager of this process.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Time after which the manager restarts a daemon that does not report its life.
    pub(super) watchdog: Option<Duration>,
    has_failed: AtomicBool,
}

impl ServiceManager {
    /// The manager that the environment names, if there is one.
    pub(super) fn from_environment() -> Self {
        Self::named_by(|name| std::env::var_os(name))
    }

    fn named_by(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let socket = variable(SOCKET).filter(|name| !name.is_empty()).and_then(|name| {
            open(&name)
                .inspect_err(|error| {
                    warn!(%error, "{SOCKET} = {name:?} cannot be used: the service manager gets no reports");
                })
                .ok()
        });
        let is_for_this = variable(WATCHDOG_PROCESS)
            .is_none_or(|pid| pid.to_str().and_then(|pid| pid.parse().ok()) == Some(process::id()));
        let watchdog = variable(WATCHDOG).filter(|_| is_for_this && socket.is_some());
        let watchdog = watchdog.and_then(|text| {
            let limit =
                text.to_str().and_then(|text| text.parse::<u64>().ok()).filter(|usec| *usec > 0);
            if limit.is_none() {
                warn!("{WATCHDOG} = {text:?} is not a number of microseconds: no watchdog");
            }
            limit.map(Duration::from_micros)
        });
        Self { socket, watchdog, has_failed: AtomicBool::new(false) }
    }

    /// The daemon serves. `status` is shown to the operator.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\n{}", status_line(status)));
    }

    /// The daemon reads its configuration again; [`Self::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// The daemon stops, within `limit`.
    pub(super) fn stopping(&self, limit: Duration) {
        let usec = (limit + EXIT_TIME).as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={usec}\n{}", status_line("stopping")));
    }

    /// What the daemon does, for the operator.
    pub(super) fn status(&self, status: &str) {
        self.send(&status_line(status));
    }

    /// The daemon is alive.
    pub(super) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, lines: &str) {
        let Some((socket, manager)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(lines.as_bytes(), manager)
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            warn!(%error, "cannot report to the service manager ({SOCKET})");
        }
    }
}

/// A line with a status of one line.
fn status_line(status: &str) -> String {
    format!("STATUS={}", status.replace('\n', " "))
}

fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_LIMIT))?;
    Ok((socket, address(name.as_bytes())?))
}

/// The address of a path, or of a name in the abstract namespace, which begins with `@`.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name {
        [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(name)),
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a path, or @ and a name")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn manager(variables: &[(&str, String)]) -> ServiceManager {
        ServiceManager::named_by(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 1_024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(buffer.get(..length).unwrap()).into_owned()
    }

    #[test]
    fn states_are_datagrams_of_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[(SOCKET, path.to_str().unwrap().to_owned())]);
        assert_eq!(manager.watchdog, None);
        manager.status("opening\nthe store");
        assert_eq!(received(&socket), "STATUS=opening the store");
        manager.ready("serving");
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving");
        manager.alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
        manager.reloading();
        let text = received(&socket);
        let usec = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(usec.parse::<u64>().unwrap() > 0, "{text}");
        manager.stopping(Duration::from_secs(20));
        let expected = "STOPPING=1\nEXTEND_TIMEOUT_USEC=30000000\nSTATUS=stopping";
        assert_eq!(received(&socket), expected);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_of_the_abstract_namespace_is_an_address() {
        let name = format!("saltern-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        manager(&[(SOCKET, format!("@{name}"))]).alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
    }

    #[test]
    fn the_watchdog_is_for_the_named_process() {
        let directory = tempfile::tempdir().unwrap();
        let socket = (SOCKET, directory.path().join("notify").to_str().unwrap().to_owned());
        let limit = |variables: &[(&'static str, &str)]| {
            let owned = variables.iter().map(|(name, value)| (*name, (*value).to_owned()));
            let variables: Vec<_> = owned.chain([socket.clone()]).collect();
            manager(&variables).watchdog
        };
        let own = process::id().to_string();
        let minute = Some(Duration::from_mins(1));
        assert_eq!(limit(&[(WATCHDOG, "60000000")]), minute);
        assert_eq!(limit(&[(WATCHDOG, "60000000"), (WATCHDOG_PROCESS, &own)]), minute);
        for wrong in [
            &[(WATCHDOG, "60000000"), (WATCHDOG_PROCESS, "0")][..],
            &[(WATCHDOG, "soon")],
            &[(WATCHDOG, "0")],
            &[],
        ] {
            assert_eq!(limit(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn without_a_usable_socket_nothing_is_sent() {
        for name in ["", "relative", "vsock:2:1234"] {
            let manager = manager(&[(SOCKET, name.to_owned()), (WATCHDOG, "60000000".to_owned())]);
            assert!(manager.socket.is_none() && manager.watchdog.is_none(), "{name:?}");
            manager.ready("serving");
        }
        // A manager that is gone does not stop the daemon.
        let manager = manager(&[(SOCKET, "/nowhere/notify".to_owned())]);
        manager.ready("serving");
        assert!(manager.has_failed.load(Ordering::Relaxed));
    }
}
