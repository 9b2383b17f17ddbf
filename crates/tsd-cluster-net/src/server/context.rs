//! What all connections of a server share.

use std::sync::atomic::AtomicBool;

use tsd_storage::LogLimit;

use crate::{
    config::{NetConfig, NodeIdentity},
    service::PeerService,
};

/// Maximum bytes of another node's reason in the log.
const REASON_BYTES: usize = 1_000;

/// State that all connections share.
#[derive(Debug)]
pub(super) struct ServerContext {
    pub(super) identity: NodeIdentity,
    pub(super) config: NetConfig,
    pub(super) service: PeerService,
    pub(super) log: LogLimit,
    pub(super) refusal_log: LogLimit,
    /// True once another node has connected.
    pub(super) was_reached: AtomicBool,
}

impl ServerContext {
    /// Logs why another node does not join.
    pub(super) fn note_refusal(&self, peer: &str, reason: &str) {
        if self.refusal_log.admit().is_some() {
            let reason = reason.get(..reason.floor_char_boundary(REASON_BYTES)).unwrap_or_default();
            self.service.node.note_refusal(peer, reason);
        }
    }

    pub(super) fn warn(&self, text: impl FnOnce() -> String) {
        if let Some(suppressed) = self.log.admit() {
            tracing::warn!(suppressed, "{}", text());
        }
    }
}
