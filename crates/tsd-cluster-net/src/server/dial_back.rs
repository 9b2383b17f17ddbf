//! Dials back: connects to a joining node at its published address.

use std::sync::Arc;

use tokio::time::Instant;

use super::context::ServerContext;
use crate::{admission::DIAL_BACK_LIMIT, error::PeerError, reach::reach, wire::DialBackMessage};

/// Connects and sends a probe.
pub(super) async fn dial_back(
    context: &ServerContext,
    message: &DialBackMessage,
    name: &str,
) -> Result<(), PeerError> {
    let DialBackMessage { address, incarnation } = message;
    let deadline = Instant::now() + context.config.connect_timeout * DIAL_BACK_LIMIT;
    let this = Arc::new(context.identity.clone());
    let reached = reach(address, *incarnation, &this, &context.config, deadline).await;
    if let Err(error) = &reached {
        context.warn(|| {
            format!("node {name:?} joins at {address:?}, where it cannot be reached: {error}")
        });
    }
    reached
}
