//! Connects to a node at its published address, as other nodes will.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    client::PeerClient,
    config::{NetConfig, NodeIdentity},
    error::PeerError,
};

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Connects and sends a probe. Repeats an attempt that timed out or lost its connection, until the deadline.
pub(crate) async fn reach(
    address: &str,
    incarnation: u64,
    this: &Arc<NodeIdentity>,
    config: &NetConfig,
    deadline: Instant,
) -> Result<(), PeerError> {
    loop {
        let client = PeerClient::new(address, incarnation, Arc::clone(this), config.clone());
        let Err(error) = client.probe(deadline).await else { return Ok(()) };
        let may_be_slow = matches!(error, PeerError::Timeout | PeerError::Lost);
        if !may_be_slow || Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}
