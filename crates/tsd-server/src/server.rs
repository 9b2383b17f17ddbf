//! The listener: accepts, counts and limits connections, and drains them at shutdown.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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
use tsd_engine::{EngineHandle, QueryClock};

use crate::{ServerConfig, connection, server_state::ServerState};

/// Interval of the metrics recorder's upkeep of its histograms.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// Pause after a failed accept: causes such as too few file descriptors persist for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// The time zone is unknown.
    #[error("there is no time zone {name:?}")]
    NoSuchZone {
        /// Its name.
        name: String,
    },
}

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections that were closed at the deadline.
    pub cut_off: usize,
}

/// A running listener. Dropping it without [`Self::shutdown`] leaves it running until the runtime
/// ends.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
    tasks: TaskTracker,
    abort: CancellationToken,
    acceptor: JoinHandle<()>,
    upkeep: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the port and serves it on the current tokio runtime.
    #[expect(clippy::unused_async, reason = "being async says that it must run on a runtime")]
    pub async fn bind(config: ServerConfig, engine: EngineHandle) -> Result<Self, BindError> {
        let requested = config.address();
        let zone = tsd_engine::find_zone(&config.time_zone)
            .ok_or_else(|| BindError::NoSuchZone { name: config.time_zone.clone() })?;
        let clock = QueryClock { zone, ..QueryClock::utc(0) };
        let failed = |source| BindError::Listen { address: requested, source };
        let listener = listen(&config).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
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
        let state = Arc::new(ServerState::new(config, address, engine, clock));
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let acceptor =
            tokio::spawn(accept(listener, Arc::clone(&state), tasks.clone(), abort.clone()));
        info!(%address, "serving");
        Ok(Self { address, state, tasks, abort, acceptor, upkeep })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.state.open_connections.load(Ordering::Relaxed)
    }

    /// Completes when a client sent `diediedie` and that is enabled.
    pub async fn stop_requested(&self) {
        self.state.stop_requested.cancelled().await;
    }

    /// Stops accepting, lets every connection process what it has received, and closes those still
    /// open after `deadline`.
    pub async fn shutdown(self, deadline: Duration) -> ShutdownReport {
        self.state.stopping.cancel();
        self.state.engine.end_holds();
        let _ = self.acceptor.await;
        if let Some(upkeep) = self.upkeep {
            upkeep.abort();
        }
        self.tasks.close();
        let mut cut_off = 0;
        if timeout(deadline, self.tasks.wait()).await.is_err() {
            cut_off = self.tasks.len();
            warn!(cut_off, "connections did not finish in time");
            self.abort.cancel();
            self.tasks.wait().await;
        }
        ShutdownReport { cut_off }
    }
}

fn listen(config: &ServerConfig) -> io::Result<TcpListener> {
    let address = config.address();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(config.reuse_address)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Slot of an open connection, released on drop.
#[derive(Debug)]
struct ConnectionSlot(Arc<ServerState>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connections_open.decrement(1.0);
    }
}

/// Acquires a slot; `None` at the connection limit.
fn acquire_slot(state: &Arc<ServerState>) -> Option<ConnectionSlot> {
    let open: &AtomicUsize = &state.open_connections;
    let limit = state.config.limits.connections.map_or(usize::MAX, std::num::NonZeroUsize::get);
    open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
        .ok()?;
    state.metrics.connections_open.increment(1.0);
    Some(ConnectionSlot(Arc::clone(state)))
}

async fn accept(
    listener: TcpListener,
    state: Arc<ServerState>,
    tasks: TaskTracker,
    abort: CancellationToken,
) {
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = state.stopping.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => {
                failing = false;
                accepted
            }
            Err(error) => {
                state.metrics.exceptions_unknown.add(1);
                if !std::mem::replace(&mut failing, true) {
                    warn!(%error, "cannot accept connections");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = acquire_slot(&state) else {
            state.metrics.connections_rejected.add(1);
            continue;
        };
        state.metrics.connections_total.add(1);
        if let Err(error) = set_options(&stream, &state.config) {
            debug!(%peer, %error, "cannot set socket options");
        }
        let (state, abort) = (Arc::clone(&state), abort.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = connection::serve(state, stream, peer) => {}
                () = abort.cancelled() => {}
            }
            drop(slot);
        });
    }
}

fn set_options(stream: &TcpStream, config: &ServerConfig) -> io::Result<()> {
    stream.set_nodelay(config.tcp_no_delay)?;
    SockRef::from(stream).set_keepalive(config.tcp_keep_alive)
}
