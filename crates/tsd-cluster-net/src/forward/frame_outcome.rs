//! The outcome of a sent frame.

use super::wire::ForwardedMessage;
use crate::error::PeerError;

/// Outcome of a frame.
#[derive(Clone, Debug)]
pub(super) enum FrameOutcome {
    /// The receiver's response. After an error of the connection the writes may have been made.
    Response(Result<ForwardedMessage, PeerError>),
    /// The frame was not sent.
    NotSent(PeerError),
    /// The deadline passed before the frame was sent.
    Late,
}

impl FrameOutcome {
    /// True if the receiver rejected the whole frame because of some of its cells.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Response(Ok(response)) if response.is_refused())
    }
}
