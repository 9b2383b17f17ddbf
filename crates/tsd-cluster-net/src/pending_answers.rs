//! Who waits for which answers of a connection.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use crate::{error::PeerError, wire::ResponseBody};

/// Frames of one request that wait for its caller. While it is full the connection is not read: callers take
/// frames as they come, and hand them on by memory that they have reserved.
const WAITING_FRAMES: usize = 4;

/// An answer; an error is that of the connection.
pub(crate) type Answer = Result<ResponseBody, PeerError>;

/// Where the answers to a request come.
pub(crate) trait AnswerReceiver: Sized {
    /// A new one, and what sends to it.
    fn open() -> (AnswerSender, Self);
}

/// Where the answers to a request go.
#[derive(Debug)]
pub(crate) enum AnswerSender {
    /// There is one.
    Once(oneshot::Sender<Answer>),
    /// There are several.
    Stream(mpsc::Sender<Answer>),
}

/// The requests in progress of a connection.
#[derive(Debug, Default)]
pub(crate) struct PendingAnswers(Mutex<PendingSenders>);

#[derive(Debug, Default)]
struct PendingSenders {
    by_id: HashMap<u64, AnswerSender>,
    /// Why the connection has ended.
    end: Option<PeerError>,
}

impl AnswerReceiver for oneshot::Receiver<Answer> {
    fn open() -> (AnswerSender, Self) {
        let (sender, answer) = oneshot::channel();
        (AnswerSender::Once(sender), answer)
    }
}

impl AnswerReceiver for mpsc::Receiver<Answer> {
    fn open() -> (AnswerSender, Self) {
        let (sender, answers) = mpsc::channel(WAITING_FRAMES);
        (AnswerSender::Stream(sender), answers)
    }
}

impl PendingAnswers {
    fn lock(&self) -> MutexGuard<'_, PendingSenders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, unless the connection has ended.
    pub(crate) fn add(&self, id: u64, sender: AnswerSender) -> Result<(), PeerError> {
        let mut pending = self.lock();
        if let Some(error) = &pending.end {
            return Err(error.clone());
        }
        pending.by_id.insert(id, sender);
        Ok(())
    }

    /// Removes a request. False if it has its last answer already.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.lock().by_id.remove(&id).is_some()
    }

    /// Gives an answer to its request, if somebody waits for it.
    pub(crate) async fn answered(&self, id: u64, body: ResponseBody) {
        let is_taken = match self.sender(id, body.is_last()) {
            Some(AnswerSender::Once(sender)) => sender.send(Ok(body)).is_ok(),
            Some(AnswerSender::Stream(sender)) => sender.send(Ok(body)).await.is_ok(),
            None => false,
        };
        if !is_taken {
            self.remove(id);
        }
    }

    /// Who waits for an answer. After the last one nobody does.
    fn sender(&self, id: u64, is_last: bool) -> Option<AnswerSender> {
        let mut pending = self.lock();
        match pending.by_id.get(&id) {
            Some(AnswerSender::Stream(sender)) if !is_last => {
                Some(AnswerSender::Stream(sender.clone()))
            }
            _ => pending.by_id.remove(&id),
        }
    }

    /// Why the connection has ended.
    pub(crate) fn ended(&self) -> Option<PeerError> {
        self.lock().end.clone()
    }

    /// Ends the connection, with all requests in progress.
    pub(crate) fn end(&self, error: PeerError) {
        let mut pending = self.lock();
        for (_, sender) in pending.by_id.drain() {
            let error = Err(error.clone());
            match sender {
                AnswerSender::Once(sender) => drop(sender.send(error)),
                // One whose frames wait finds the end of its channel after them.
                AnswerSender::Stream(sender) => drop(sender.try_send(error)),
            }
        }
        pending.end.get_or_insert(error);
    }
}
