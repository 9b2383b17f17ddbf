//! Dials back: connects to a joining node at its published address.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::context::ServerContext;
use crate::{
    admission::DIAL_BACK_LIMIT, client::PeerClient, error::PeerError, wire::DialBackMessage,
};

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Connects and sends a probe. Repeats an attempt that timed out or lost its connection.
pub(super) async fn dial_back(
    context: &ServerContext,
    message: &DialBackMessage,
    name: &str,
) -> Result<(), PeerError> {
    let DialBackMessage { address, incarnation } = message;
    let deadline = Instant::now() + context.config.connect_timeout * DIAL_BACK_LIMIT;
    let identity = Arc::new(context.identity.clone());
    loop {
        let client =
            PeerClient::new(address, *incarnation, Arc::clone(&identity), context.config.clone());
        let error = match client.probe(deadline).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let may_be_slow = matches!(error, PeerError::Timeout | PeerError::Lost);
        if !may_be_slow || Instant::now() + PAUSE >= deadline {
            context.warn(|| {
                format!("node {name:?} joins at {address:?}, where it cannot be reached: {error}")
            });
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}
