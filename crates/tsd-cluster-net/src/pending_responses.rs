//! Pending requests of a connection, and the receivers of their responses.

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};

use crate::{error::PeerError, wire::ResponseBody};

/// Maximum number of frames of one request that wait for its caller. While that many wait, the connection is
/// not read. Callers take frames as they arrive, and keep them in memory that they have reserved.
const WAITING_FRAMES: usize = 4;

/// A response, or the error of the connection.
pub(crate) type ResponseResult = Result<ResponseBody, PeerError>;

/// Receiver of the responses to a request.
pub(crate) trait ResponseReceiver: Sized {
    /// Returns a receiver with its sender.
    fn open() -> (ResponseSender, Self);
}

/// Sender of the responses to a request.
#[derive(Debug)]
pub(crate) enum ResponseSender {
    /// For a single response.
    Once(oneshot::Sender<ResponseResult>),
    /// For several responses.
    Stream(mpsc::Sender<ResponseResult>),
}

/// The requests in progress of a connection.
#[derive(Debug, Default)]
pub(crate) struct PendingResponses(Mutex<PendingSenders>);

#[derive(Debug, Default)]
struct PendingSenders {
    by_id: HashMap<u64, ResponseSender>,
    /// Why the connection has ended.
    end: Option<PeerError>,
}

impl ResponseReceiver for oneshot::Receiver<ResponseResult> {
    fn open() -> (ResponseSender, Self) {
        let (sender, response) = oneshot::channel();
        (ResponseSender::Once(sender), response)
    }
}

impl ResponseReceiver for mpsc::Receiver<ResponseResult> {
    fn open() -> (ResponseSender, Self) {
        let (sender, responses) = mpsc::channel(WAITING_FRAMES);
        (ResponseSender::Stream(sender), responses)
    }
}

impl PendingResponses {
    /// Adds a request, unless the connection has ended.
    pub(crate) fn add(&self, id: u64, sender: ResponseSender) -> Result<(), PeerError> {
        let mut pending = self.0.lock();
        if let Some(error) = &pending.end {
            return Err(error.clone());
        }
        pending.by_id.insert(id, sender);
        Ok(())
    }

    /// Removes a request. Returns false if it already has its last response.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.0.lock().by_id.remove(&id).is_some()
    }

    /// Delivers a response to its request, if its caller still waits.
    pub(crate) async fn deliver(&self, id: u64, body: ResponseBody) {
        let is_taken = match self.sender(id, body.is_last()) {
            Some(ResponseSender::Once(sender)) => sender.send(Ok(body)).is_ok(),
            Some(ResponseSender::Stream(sender)) => sender.send(Ok(body)).await.is_ok(),
            None => false,
        };
        if !is_taken {
            self.remove(id);
        }
    }

    /// Returns the sender for a response. Removes it with the last response.
    fn sender(&self, id: u64, is_last: bool) -> Option<ResponseSender> {
        let mut pending = self.0.lock();
        match pending.by_id.get(&id) {
            Some(ResponseSender::Stream(sender)) if !is_last => {
                Some(ResponseSender::Stream(sender.clone()))
            }
            _ => pending.by_id.remove(&id),
        }
    }

    /// Why the connection has ended.
    pub(crate) fn ended(&self) -> Option<PeerError> {
        self.0.lock().end.clone()
    }

    /// Ends the connection, with all requests in progress.
    pub(crate) fn end(&self, error: PeerError) {
        let mut pending = self.0.lock();
        for (_, sender) in pending.by_id.drain() {
            let error = Err(error.clone());
            match sender {
                ResponseSender::Once(sender) => drop(sender.send(error)),
                // If the channel is full, the caller finds its end after the waiting frames.
                ResponseSender::Stream(sender) => drop(sender.try_send(error)),
            }
        }
        pending.end.get_or_insert(error);
    }
}
