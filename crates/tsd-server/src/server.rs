//! The listener: accepts, counts and limits connections, and drains them at shutdown.
//!
//! A connection belongs to the epoch in which the system accepted it, which may be before a standstill of the process.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};
use tsd_engine::{EngineHandle, Epoch, LogLimit, QueryClock, Standstills, stood_still_since};

use crate::{
    ServerConfig, audit_upkeep::AuditUpkeep, connection, health::HealthAge, metrics,
    open_connections::NoRoom, refused_connection::RefusedConnections, self_stats,
    server_state::ServerState,
};

/// Interval of the metrics recorder's upkeep of its histograms.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// Pause after a failed accept, doubled after each further failure: causes such as too few file
/// descriptors persist for a while.
const FIRST_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Minimum interval between two messages about refused connections, or failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum ports to try if the system chooses a port that is in use on another address.
const PORT_TRIES: u32 = 16;
/// Interval of reads of the counters of UIDs.
const UID_SPACE_INTERVAL: Duration = Duration::from_mins(1);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The port could not be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// [`ServerConfig::bind`] is empty.
    #[error("no address to listen on (tsd.network.bind)")]
    NoAddress,
    /// The time zone is unknown.
    #[error("unknown time zone {name:?} (tsd.core.timezone)")]
    NoSuchZone {
        /// Name of the time zone.
        name: String,
    },
}

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections that were closed at the deadline.
    pub cut_off: usize,
}

/// A running listener. If dropped without [`Self::shutdown`], the listener runs until the runtime
/// ends.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    pub(crate) state: Arc<ServerState>,
    tasks: TaskTracker,
    abort: CancellationToken,
    acceptors: Vec<JoinHandle<()>>,
    upkeep: Option<JoinHandle<()>>,
    uid_space: JoinHandle<()>,
    audit: Option<AuditUpkeep>,
    self_stats: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the port on every address and serves it on the current tokio runtime.
    #[expect(clippy::unused_async, reason = "being async says that it must run on a runtime")]
    pub async fn bind(config: ServerConfig, engine: EngineHandle) -> Result<Self, BindError> {
        let zone = tsd_engine::find_zone(&config.time_zone)
            .ok_or_else(|| BindError::NoSuchZone { name: config.time_zone.clone() })?;
        let clock = QueryClock { zone, ..QueryClock::utc(0) };
        let (listeners, addresses) = listen_on_all(&config)?;
        let Some(&first) = addresses.first() else { return Err(BindError::NoAddress) };
        let upkeep = config.metrics.clone().map(|metrics| {
            tokio::spawn(async move {
                let mut tick = interval(METRICS_UPKEEP);
                tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
                loop {
                    tick.tick().await;
                    metrics.run_upkeep();
                }
            })
        });
        metrics::publish_build(&config.build);
        let state = ServerState::new(config, first, engine, clock)
            .map_err(|source| BindError::Listen { address: first, source })?;
        let state = Arc::new(state);
        let uid_space = tokio::spawn(follow_uid_space(state.engine.clone()));
        let audit = AuditUpkeep::start(&state.config);
        let interval = state.config.self_stats.filter(|_| state.config.mode.writes());
        let self_stats =
            interval.map(|every| tokio::spawn(self_stats::store(Arc::clone(&state), every)));
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let acceptors = listeners
            .into_iter()
            .map(|listener| {
                tokio::spawn(accept(listener, Arc::clone(&state), tasks.clone(), abort.clone()))
            })
            .collect();
        Ok(Self { addresses, state, tasks, abort, acceptors, upkeep, uid_space, audit, self_stats })
    }

    /// Returns the first listening address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.state.address
    }

    /// Returns all listening addresses, in the order of the configuration.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.state.connections.len()
    }

    /// Returns the age of the last check of the health, as it changes.
    #[must_use]
    pub fn health_age(&self) -> HealthAge {
        self.state.health_age()
    }

    /// Completes when a client sends `diediedie`, if the command is enabled.
    pub async fn stop_requested(&self) {
        self.state.stop_requested.cancelled().await;
    }

    /// Makes this daemon unready, so that load balancers send clients to others. It serves everything as before.
    pub fn leave(&self) {
        self.state.leaving.cancel();
    }

    /// Stops accepting, lets every connection process what it has received, and closes those still
    /// open after `deadline`.
    pub async fn shutdown(self, deadline: Duration) -> ShutdownReport {
        self.state.stopping.cancel();
        self.state.engine.end_holds();
        for acceptor in self.acceptors {
            let _ = acceptor.await;
        }
        self.uid_space.abort();
        if let Some(self_stats) = self.self_stats {
            self_stats.abort();
        }
        if let Some(upkeep) = self.upkeep {
            upkeep.abort();
        }
        self.tasks.close();
        let mut cut_off = 0;
        if timeout(deadline, self.tasks.wait()).await.is_err() {
            cut_off = self.tasks.len();
            warn!(cut_off, "closed connections that did not finish in time");
            self.abort.cancel();
            self.tasks.wait().await;
        }
        if let Some(audit) = self.audit {
            audit.stop();
        }
        ShutdownReport { cut_off }
    }
}

/// Reads the counters of UIDs at intervals, since other daemons advance them, too.
async fn follow_uid_space(engine: EngineHandle) {
    let mut tick = interval(UID_SPACE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = engine.refresh_uid_space().await {
            debug!(%error, "cannot read the counters of UIDs");
        }
    }
}

/// Opens a listener for each address, all with the same port.
fn listen_on_all(config: &ServerConfig) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), BindError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_listen_on_all(config) {
            // The system chose a port that is free on the first address, but not on another address.
            Err(BindError::Listen { source, .. })
                if config.port == 0
                    && source.kind() == io::ErrorKind::AddrInUse
                    && tries < PORT_TRIES => {}
            opened => return opened,
        }
    }
}

fn try_listen_on_all(
    config: &ServerConfig,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), BindError> {
    let mut port = config.port;
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for ip in &config.bind {
        let requested = SocketAddr::new(*ip, port);
        let listener = listen(requested, config)?;
        let address = listener
            .local_addr()
            .map_err(|source| BindError::Listen { address: requested, source })?;
        port = address.port();
        listeners.push(listener);
        addresses.push(address);
    }
    Ok((listeners, addresses))
}

/// Opens a listener. `[::]` also accepts IPv4, unless IPv4 has its own listener. On a host without IPv6,
/// `[::]` means `0.0.0.0`.
fn listen(address: SocketAddr, config: &ServerConfig) -> Result<TcpListener, BindError> {
    let any_v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
    let any_v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
    let only_v6 = address != any_v6 || config.bind.contains(&any_v4.ip());
    match open_socket(address, only_v6, config) {
        Err(error) if !only_v6 && lacks_ipv6(&error) => {
            info!(%error, "no IPv6 on this host: listening on 0.0.0.0");
            open_socket(any_v4, false, config)
                .map_err(|source| BindError::Listen { address: any_v4, source })
        }
        opened => opened.map_err(|source| BindError::Listen { address, source }),
    }
}

/// Returns true for the errors of a host without IPv6, or with disabled IPv6.
fn lacks_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no kind in std.
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

fn open_socket(
    address: SocketAddr,
    only_v6: bool,
    config: &ServerConfig,
) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(config.reuse_address)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Accepts the connections of a listener.
struct Acceptor {
    state: Arc<ServerState>,
    tasks: TaskTracker,
    abort: CancellationToken,
    refused: RefusedConnections,
    refused_log: LogLimit,
    no_memory_log: LogLimit,
}

async fn accept(
    listener: TcpListener,
    state: Arc<ServerState>,
    tasks: TaskTracker,
    abort: CancellationToken,
) {
    let most = state.config.limits.connections.map_or(usize::MAX, std::num::NonZero::get);
    let acceptor = Acceptor {
        state: Arc::clone(&state),
        tasks,
        abort,
        refused: RefusedConnections::new(most),
        refused_log: LogLimit::new(LOG_INTERVAL),
        no_memory_log: LogLimit::new(LOG_INTERVAL),
    };
    let failed_log = LogLimit::new(LOG_INTERVAL);
    let mut pause = FIRST_ACCEPT_PAUSE;
    let mut epoch = acceptor.epoch();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stood_still_since(epoch.as_ref()) => acceptor.drain(&listener, &mut epoch).await,
            () = state.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = FIRST_ACCEPT_PAUSE;
                acceptor.open(stream, peer, epoch.clone()).await;
            }
            // All waiting connections were accepted.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                state.metrics.exceptions_unknown.add(1);
                if let Some(suppressed) = failed_log.admit() {
                    warn!(%error, suppressed, "cannot accept connections");
                }
                tokio::select! {
                    () = sleep(pause) => {}
                    () = state.stopping.cancelled() => return,
                }
                pause = (pause * 2).min(LONGEST_ACCEPT_PAUSE);
            }
        }
    }
}

impl Acceptor {
    /// The present epoch; `None` if standstills are not detected.
    fn epoch(&self) -> Option<Epoch> {
        self.state.config.standstills.as_ref().map(Standstills::epoch)
    }

    /// After a standstill, opens the connections that wait in the queue of the system. They belong to the former epoch,
    /// so they are closed. Changes `epoch` once the queue is empty, and returns the error that says so.
    async fn drain(
        &self,
        listener: &TcpListener,
        epoch: &mut Option<Epoch>,
    ) -> io::Result<(TcpStream, SocketAddr)> {
        // Comes before the first look at the queue: a connection that is missing there belongs to this epoch.
        let present = self.epoch();
        // The queue has no more of them, even if new connections come all the time.
        for _ in 0..=self.state.config.backlog {
            match accept_waiting(listener) {
                Ok((stream, peer)) => self.open(stream, peer, epoch.clone()).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        *epoch = present;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Serves a connection of an epoch.
    async fn open(&self, stream: TcpStream, peer: SocketAddr, epoch: Option<Epoch>) {
        let state = &self.state;
        // The system reports an IPv4 client of a listener on `[::]` as `::ffff:a.b.c.d`.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let listed = match state.connections.admit().await {
            Ok(listed) => listed,
            Err(reason) => {
                state.metrics.connections_rejected.add(1);
                let log = match reason {
                    NoRoom::Connections(_) => &self.refused_log,
                    NoRoom::Memory => &self.no_memory_log,
                };
                if let Some(suppressed) = log.admit() {
                    warn!(%peer, %reason, suppressed, "connection refused");
                }
                self.refused.refuse(stream, reason);
                return;
            }
        };
        state.metrics.connections_total.add(1);
        if let Err(error) = set_options(&stream, &state.config) {
            debug!(%peer, %error, "cannot set socket options");
        }
        let (state, abort) = (Arc::clone(state), self.abort.clone());
        self.tasks.spawn(async move {
            let connection = Arc::clone(&listed.connection);
            tokio::select! {
                () = connection::serve(state, stream, peer, connection, epoch) => {}
                () = abort.cancelled() => {}
            }
            drop(listed);
        });
    }
}

/// Accepts a connection of which the runtime may not know yet.
fn accept_waiting(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, peer) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    let peer = peer.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((TcpStream::from_std(socket.into())?, peer))
}

fn set_options(stream: &TcpStream, config: &ServerConfig) -> io::Result<()> {
    stream.set_nodelay(config.tcp_no_delay)?;
    SockRef::from(stream).set_keepalive(config.tcp_keep_alive)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn all_addresses_have_one_port_also_if_the_system_chooses_it() {
        let local = |last| std::net::IpAddr::from([127, 0, 0, last]);
        // Occupies about one in a hundred of the ports that are free on the first address.
        let bind = |_| std::net::TcpListener::bind((local(2), 0)).unwrap();
        let _in_use: Vec<_> = (0..300).map(bind).collect();
        for _ in 0..300 {
            let bind = vec![local(1), local(2)];
            let config = ServerConfig { bind, port: 0, ..ServerConfig::default() };
            let (listeners, addresses) = listen_on_all(&config).unwrap();
            let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
            assert!(matches!(ports[..], [first, second] if first == second), "{ports:?}");
            assert_eq!(listeners.len(), 2);
        }
        let config = ServerConfig { bind: vec![local(1); 2], port: 0, ..ServerConfig::default() };
        let Err(BindError::Listen { source, .. }) = listen_on_all(&config) else {
            panic!("an address has two listeners")
        };
        assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
    }
}
