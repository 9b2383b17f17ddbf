//! Accepts connections of peers and responds to their requests.
//!
//! It bounds the connections, the requests in progress of each connection, and the frames that wait for their
//! write. A peer that does not read its responses is disconnected; it asks again.

mod context;
mod dial_back;
mod session;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;
use tsd_storage::LogLimit;

use self::context::ServerContext;
use crate::{
    config::{NetConfig, NodeIdentity},
    metrics::NetMetrics,
    service::PeerService,
};

/// Pause after a failed accept, for example when the process has no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log messages about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// The listener for peers. Dropping it closes all connections.
#[derive(Debug)]
pub struct PeerServer {
    address: SocketAddr,
    context: Arc<ServerContext>,
    _accepting: AbortOnDropHandle<()>,
}

impl PeerServer {
    /// Serves the peers that connect to `listener`.
    ///
    /// # Errors
    ///
    /// If the listener has no address.
    pub fn start(
        listener: TcpListener,
        identity: NodeIdentity,
        config: NetConfig,
        service: PeerService,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let log = LogLimit::new(LOG_INTERVAL);
        let refusal_log = LogLimit::new(LOG_INTERVAL);
        let was_reached = AtomicBool::new(false);
        let context = ServerContext { identity, config, service, log, refusal_log, was_reached };
        let context = Arc::new(context);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&context)));
        Ok(Self { address, context, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// True once another node has connected to this one.
    #[must_use]
    pub fn was_reached(&self) -> bool {
        self.context.was_reached.load(Ordering::Relaxed)
    }

    /// Address of the listener.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, context: Arc<ServerContext>) {
    let metrics = NetMetrics::of_process();
    let permits = Arc::new(Semaphore::new(context.config.max_connections));
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                context.warn(|| format!("a node cannot connect: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            metrics.connections_refused.increment(1);
            context.warn(|| {
                format!("{peer}: more connections of nodes than tsd.cluster.max_connections")
            });
            continue;
        };
        let context = Arc::clone(&context);
        sessions.spawn(async move {
            metrics.connections.increment(1);
            let ended = session::serve(stream, &context).await;
            metrics.connections.decrement(1);
            drop(permit);
            if let Err(error) = ended {
                context.warn(|| format!("the connection of node {peer} was closed: {error}"));
            }
        });
    }
}
