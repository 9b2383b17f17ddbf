//! Calls under way on a connection.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    error::{CallError, DisconnectReason},
    first_words::FirstWords,
};
use crate::{
    exception::{ExceptionClass, RemoteException},
    frame::{Answer, CONNECTION_CALL, FrameError, Outcome, Response},
    server_name::ServerName,
};

/// So many calls out of time in a row, with nothing read in between, and the connection is dead,
const DEAD_AFTER: u32 = 2;

/// if that lasted at least so long: some callers are in a hurry.
const DEAD_SILENCE: Duration = Duration::from_secs(2);

/// One call is enough if it was this patient and nothing was read from its beginning to its end.
const PATIENT: Duration = Duration::from_secs(5);

/// How a call ended that brought no answer.
#[derive(Debug)]
pub(super) enum End {
    Exception(RemoteException),
    Unreadable(FrameError),
    Disconnected { sent: bool, reason: DisconnectReason },
}

impl End {
    pub(super) fn into_error(self, server: &ServerName) -> CallError {
        let server = server.clone();
        match self {
            Self::Exception(exception) => CallError::Remote { server, exception },
            Self::Unreadable(source) => CallError::Answer { server, source: Arc::new(source) },
            Self::Disconnected { sent, reason } => CallError::Disconnected { server, sent, reason },
        }
    }
}

/// The call map, and whether the connection lives.
#[derive(Debug)]
pub(super) struct Calls {
    state: Mutex<State>,
    /// Ends reader and writer.
    pub(super) closed: CancellationToken,
    timeouts: AtomicU32,
    begun: Instant,
    /// Milliseconds from the beginning to the last byte that came, and one; 0 before the first.
    heard_ms: AtomicU64,
    first_words: Arc<FirstWords>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u32, Waiting>,
    next_id: u32,
    closed: Option<DisconnectReason>,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Answer, End>>,
    sent: bool,
}

impl Calls {
    pub(super) fn new(first_words: Arc<FirstWords>) -> Self {
        Self {
            state: Mutex::default(),
            closed: CancellationToken::new(),
            timeouts: AtomicU32::new(0),
            begun: Instant::now(),
            heard_ms: AtomicU64::new(0),
            first_words,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
    }

    /// Takes an id for a call.
    pub(super) fn begin(self: &Arc<Self>) -> Result<Call, DisconnectReason> {
        let mut state = self.state();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        // Permits keep the map far smaller than the ids there are.
        let mut id = state.next_id;
        while state.waiting.contains_key(&id) {
            id = (id + 1) & i32::MAX as u32;
        }
        state.next_id = (id + 1) & i32::MAX as u32;
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(id, Waiting { answer: sender, sent: false });
        Ok(Call { id, answer, calls: Arc::clone(self) })
    }

    /// Notes that these requests go out now. Returns whether each is still waited for.
    pub(super) fn sending(&self, ids: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut state = self.state();
        let mark = |id| state.waiting.get_mut(&id).map(|waiting| waiting.sent = true).is_some();
        ids.map(mark).collect()
    }

    /// Something was read.
    pub(super) fn heard(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.heard_ms.swap(now.saturating_add(1), Ordering::Relaxed) == 0 {
            self.first_words.heard();
        }
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// How long nothing was read.
    fn silence(&self) -> Duration {
        let heard = self.heard_ms.load(Ordering::Relaxed).saturating_sub(1);
        let heard = Duration::from_millis(heard);
        self.begun.elapsed().saturating_sub(heard)
    }

    /// Ends the connection if no call is under way.
    pub(super) fn close_if_idle(&self) {
        let mut state = self.state();
        if state.waiting.is_empty() && state.closed.is_none() {
            state.closed = Some(DisconnectReason::Idle);
            self.closed.cancel();
        }
    }

    /// Hands an answer to its call. One that nobody waits for is passed over.
    pub(super) fn answered(&self, response: Response) {
        if let Outcome::Exception(exception) = &response.outcome
            && (response.call_id == CONNECTION_CALL
                || exception.class() == ExceptionClass::Connection)
        {
            self.close(&DisconnectReason::Refused(exception.clone()));
            return;
        }
        let Some(waiting) = self.state().waiting.remove(&response.call_id) else {
            tracing::debug!(call_id = response.call_id, "answer to a call that nobody waits for");
            return;
        };
        // The caller may have gone just now.
        let _ = waiting.answer.send(match response.outcome {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Exception(exception) => Err(End::Exception(exception)),
            Outcome::Unreadable(error) => Err(End::Unreadable(error)),
        });
    }

    /// The stream has ended or failed.
    pub(super) fn lost(&self, reason: &DisconnectReason) {
        let silent = matches!(reason, DisconnectReason::ClosedByServer)
            && self.heard_ms.load(Ordering::Relaxed) == 0
            && self.is_open();
        if silent {
            self.close(&self.first_words.ended_in_silence());
        } else {
            self.close(reason);
        }
    }

    /// Ends all calls. Only the first reason counts.
    pub(super) fn close(&self, reason: &DisconnectReason) {
        let waiting = {
            let mut state = self.state();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(reason.clone());
            std::mem::take(&mut state.waiting)
        };
        self.closed.cancel();
        for waiting in waiting.into_values() {
            let end = End::Disconnected { sent: waiting.sent, reason: reason.clone() };
            let _ = waiting.answer.send(Err(end));
        }
    }
}

/// One call under way. Dropped, its id is forgotten.
#[derive(Debug)]
pub(super) struct Call {
    id: u32,
    answer: oneshot::Receiver<Result<Answer, End>>,
    calls: Arc<Calls>,
}

impl Call {
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) async fn answer(&mut self) -> Result<Answer, End> {
        // The sender goes only after it has spoken, unless the whole map goes.
        let lost = End::Disconnected { sent: true, reason: DisconnectReason::Closed };
        (&mut self.answer).await.unwrap_or(Err(lost))
    }

    /// Time is up, after this long. Returns whether the request had gone out.
    pub(super) fn give_up(self, waited: Duration) -> bool {
        let sent = self.calls.state().waiting.remove(&self.id).is_some_and(|waiting| waiting.sent);
        let timeouts = self.calls.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let silence = self.calls.silence();
        let patient = sent && waited >= PATIENT && silence >= waited;
        if patient || timeouts >= DEAD_AFTER && silence >= DEAD_SILENCE {
            self.calls.close(&DisconnectReason::Dead);
        }
        sent
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.state().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use hbase_rs_protobuf as pb;
    use prost::Message;
    use tokio::time::{advance, pause};

    use super::*;
    use crate::frame::FrameReader;

    fn response(call_id: u32, class: Option<&str>) -> Response {
        let exception = class.map(|class| pb::ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            ..pb::ExceptionResponse::default()
        });
        let header = pb::ResponseHeader {
            call_id: Some(call_id),
            exception,
            ..pb::ResponseHeader::default()
        };
        let body = header.encode_length_delimited_to_vec();
        let mut buffer = BytesMut::new();
        buffer.put_u32(body.len() as u32);
        buffer.put_slice(&body);
        Response::decode(FrameReader::new(1 << 10).next(&mut buffer).unwrap().unwrap()).unwrap()
    }

    fn calls() -> Arc<Calls> {
        Arc::new(Calls::new(Arc::new(FirstWords::new(Arc::default()))))
    }

    #[tokio::test]
    async fn an_answer_reaches_its_call_and_no_other() {
        let calls = calls();
        let (mut one, mut two) = (calls.begin().unwrap(), calls.begin().unwrap());
        calls.answered(response(two.id(), Some("java.io.IOException")));
        calls.answered(response(one.id(), None));
        assert!(one.answer().await.is_ok());
        assert!(matches!(two.answer().await, Err(End::Exception(_))));
        // Nobody waits for these.
        calls.answered(response(two.id(), None));
        calls.answered(response(77, None));
        assert!(calls.is_open());
    }

    #[tokio::test]
    async fn ids_wrap_and_pass_over_those_in_use() {
        let calls = calls();
        let first = calls.begin().unwrap();
        assert_eq!(first.id(), 0);
        calls.state().next_id = i32::MAX as u32;
        assert_eq!(calls.begin().unwrap().id(), i32::MAX as u32);
        assert_eq!(calls.begin().unwrap().id(), 1);
        drop(first);
        calls.state().next_id = 0;
        assert_eq!(calls.begin().unwrap().id(), 0);
    }

    #[tokio::test]
    async fn a_dropped_call_is_forgotten() {
        let calls = calls();
        let id = calls.begin().unwrap().id();
        assert!(calls.state().waiting.is_empty());
        assert_eq!(calls.sending([id].into_iter()), [false]);
    }

    #[tokio::test]
    async fn the_end_tells_each_call_whether_it_had_gone_out() {
        let calls = calls();
        let (mut sent, mut waiting) = (calls.begin().unwrap(), calls.begin().unwrap());
        assert_eq!(calls.sending([sent.id()].into_iter()), [true]);
        calls.heard();
        calls.lost(&DisconnectReason::ClosedByServer);
        calls.close(&DisconnectReason::Dead);
        for (call, expected) in [(&mut sent, true), (&mut waiting, false)] {
            let Err(End::Disconnected { sent, reason }) = call.answer().await else { panic!() };
            assert_eq!(sent, expected);
            assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
        }
        assert!(calls.begin().is_err());
    }

    #[tokio::test]
    async fn words_about_the_connection_end_it() {
        for (id, class) in
            [(CONNECTION_CALL, "x.AccessDeniedException"), (0, "x.ipc.FatalConnectionException")]
        {
            let calls = calls();
            let mut call = calls.begin().unwrap();
            calls.answered(response(id, Some(class)));
            let end = call.answer().await;
            assert!(
                matches!(&end, Err(End::Disconnected { reason: DisconnectReason::Refused(_), .. })),
                "{end:?}"
            );
        }
    }

    #[tokio::test]
    async fn only_a_connection_without_a_word_ends_in_silence() {
        let silent = calls();
        let mut call = silent.begin().unwrap();
        silent.lost(&DisconnectReason::ClosedByServer);
        let Err(End::Disconnected { reason, .. }) = call.answer().await else { panic!() };
        assert!(
            matches!(reason, DisconnectReason::Silent { times: 1, for_good: false }),
            "{reason}"
        );
        let heard = calls();
        let mut call = heard.begin().unwrap();
        heard.heard();
        heard.lost(&DisconnectReason::ClosedByServer);
        let Err(End::Disconnected { reason, .. }) = call.answer().await else { panic!() };
        assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
    }

    #[tokio::test]
    async fn calls_out_of_time_in_a_row_and_nothing_read_is_death() {
        pause();
        let give_up = |calls: &Arc<Calls>| {
            let call = calls.begin().unwrap();
            calls.sending([call.id()].into_iter());
            assert!(call.give_up(DEAD_SILENCE));
        };
        let hasty = calls();
        let calls = calls();
        advance(DEAD_SILENCE * 2).await;
        give_up(&calls);
        assert!(calls.is_open());
        // A byte in between: it lives.
        calls.heard();
        advance(DEAD_SILENCE * 2).await;
        give_up(&calls);
        assert!(calls.is_open());
        give_up(&calls);
        assert!(!calls.is_open());
        // Callers in a hurry do not kill it.
        hasty.heard();
        for _ in 0..10 {
            give_up(&hasty);
        }
        assert!(hasty.is_open());
    }

    #[tokio::test]
    async fn only_an_idle_connection_is_closed_as_idle() {
        let calls = calls();
        let call = calls.begin().unwrap();
        calls.close_if_idle();
        assert!(calls.is_open());
        drop(call);
        calls.close_if_idle();
        assert!(!calls.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn one_patient_call_without_a_byte_read_is_death() {
        let begin = |calls: &Arc<Calls>| {
            let call = calls.begin().unwrap();
            calls.sending([call.id()].into_iter());
            call
        };
        let calls = calls();
        calls.heard();
        let call = begin(&calls);
        advance(PATIENT / 2).await;
        calls.heard();
        advance(PATIENT / 2).await;
        assert!(call.give_up(PATIENT));
        assert!(calls.is_open());
        calls.heard();
        let call = begin(&calls);
        advance(PATIENT).await;
        assert!(call.give_up(PATIENT));
        assert!(!calls.is_open());
    }
}
