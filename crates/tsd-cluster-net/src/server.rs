//! Accepts connections of peers and answers their requests.
//!
//! Bounds: connections, requests in progress of each, frames that wait to be written. A peer that does not read
//! its answers is disconnected; it asks again.

mod dial_back;
mod session;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;
use tsd_storage::LogLimit;

use crate::{
    config::{NetConfig, NodeIdentity},
    metrics::NetMetrics,
    service::PeerService,
};

/// Pause after a failed accept: the process lacks descriptors, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Least time between two messages about connections that were closed.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of a reason that another node has sent, in the log.
const REASON_BYTES: usize = 1_000;

/// The listener for peers. Dropping it closes all connections.
#[derive(Debug)]
pub struct PeerServer {
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

/// What all connections share.
#[derive(Debug)]
struct ServerContext {
    identity: NodeIdentity,
    config: NetConfig,
    service: PeerService,
    log: LogLimit,
    refusal_log: LogLimit,
}

impl PeerServer {
    /// Answers the peers that connect to `listener`.
    ///
    /// # Errors
    ///
    /// The listener has no address.
    pub fn start(
        listener: TcpListener,
        identity: NodeIdentity,
        config: NetConfig,
        service: PeerService,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let log = LogLimit::new(LOG_INTERVAL);
        let refusal_log = LogLimit::new(LOG_INTERVAL);
        let context = Arc::new(ServerContext { identity, config, service, log, refusal_log });
        let accepting = tokio::spawn(accept(listener, context));
        Ok(Self { address, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// Its address.
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
            context.warn(|| format!("{peer}: too many connections of nodes"));
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

impl ServerContext {
    /// Notes why another node does not join.
    fn note_refusal(&self, peer: &str, reason: &str) {
        NetMetrics::of_process().refusals_noted.increment(1);
        if self.refusal_log.admit().is_some() {
            let reason = reason.get(..reason.floor_char_boundary(REASON_BYTES)).unwrap_or_default();
            self.service.node.note_refusal(peer, reason);
        }
    }

    fn warn(&self, text: impl FnOnce() -> String) {
        if let Some(suppressed) = self.log.admit() {
            tracing::warn!(suppressed, "{}", text());
        }
    }
}
