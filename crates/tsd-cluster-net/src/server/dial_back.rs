//! Connects to a node that joins, at the address that it has published.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::ServerContext;
use crate::{
    admission::DIAL_BACK_LIMIT, client::PeerClient, error::PeerError, wire::DialBackMessage,
};

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Connects and asks for a sign of life. An attempt that was only slow is repeated.
pub(super) async fn dial_back(
    context: &ServerContext,
    message: &DialBackMessage,
    name: &str,
) -> Result<(), String> {
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
            return Err(error.to_string());
        }
        sleep(PAUSE).await;
    }
}
