//! Pending calls of a connection, and detection of dead connections.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    error::{CallError, DisconnectReason},
    silent_close::SilentCloseTracker,
};
use crate::{
    exception::ExceptionClass,
    frame::{CONNECTION_CALL, CallOutcome, Response, ResponseBody},
    server_name::ServerName,
};

/// Number of consecutive timeouts without received data after which a connection is dead.
const DEAD_TIMEOUTS: u32 = 2;

/// Minimum time without received data for that, since some callers have short timeouts.
const DEAD_DURATION: Duration = Duration::from_secs(2);

/// A single timeout suffices if it was this long and no data was received during the call.
const LONG_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls by id, and the state of the connection.
#[derive(Debug)]
pub(super) struct PendingCalls {
    server: ServerName,
    map: Mutex<CallMap>,
    /// Cancels reader and writer.
    pub(super) closed: CancellationToken,
    timeouts: AtomicU32,
    opened: Instant,
    /// Milliseconds from `opened` to the last received data, plus 1; 0 before the first.
    last_data_ms: AtomicU64,
    silent_closes: Arc<SilentCloseTracker>,
}

#[derive(Debug, Default)]
struct CallMap {
    waiters: HashMap<u32, Waiter>,
    next_id: u32,
    closed: Option<DisconnectReason>,
}

#[derive(Debug)]
struct Waiter {
    result: oneshot::Sender<Result<ResponseBody, CallError>>,
    sent: bool,
}

impl PendingCalls {
    pub(super) fn new(server: ServerName, silent_closes: Arc<SilentCloseTracker>) -> Self {
        Self {
            server,
            map: Mutex::default(),
            closed: CancellationToken::new(),
            timeouts: AtomicU32::new(0),
            opened: Instant::now(),
            last_data_ms: AtomicU64::new(0),
            silent_closes,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
    }

    /// Registers a call under a new id.
    pub(super) fn register(self: &Arc<Self>) -> Result<PendingCall, CallError> {
        let mut map = self.map.lock();
        if let Some(reason) = &map.closed {
            return Err(self.error(false, reason.clone()));
        }
        // Terminates: permits keep the map far smaller than the id space.
        let mut id = map.next_id;
        while map.waiters.contains_key(&id) {
            id = (id + 1) & i32::MAX as u32;
        }
        map.next_id = (id + 1) & i32::MAX as u32;
        let (sender, result) = oneshot::channel();
        map.waiters.insert(id, Waiter { result: sender, sent: false });
        Ok(PendingCall { id, result, calls: Arc::clone(self) })
    }

    /// Marks calls as sent before their requests are written. Returns for each whether it is still
    /// pending.
    pub(super) fn mark_sent(&self, ids: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut map = self.map.lock();
        let mark = |id| map.waiters.get_mut(&id).map(|waiter| waiter.sent = true).is_some();
        ids.map(mark).collect()
    }

    /// Records that data was received.
    pub(super) fn data_received(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.last_data_ms.swap(now.saturating_add(1), Ordering::Relaxed) == 0 {
            self.silent_closes.record_data();
        }
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Returns the time since data was last received.
    fn time_without_data(&self) -> Duration {
        let last_data = self.last_data_ms.load(Ordering::Relaxed).saturating_sub(1);
        self.opened.elapsed().saturating_sub(Duration::from_millis(last_data))
    }

    /// Closes the connection if no call is pending.
    pub(super) fn close_if_idle(&self) {
        let mut map = self.map.lock();
        if map.waiters.is_empty() && map.closed.is_none() {
            map.closed = Some(DisconnectReason::Idle);
            self.closed.cancel();
        }
    }

    /// Completes the call of a response. Responses to unknown ids are ignored, for their calls timed
    /// out.
    pub(super) fn complete(&self, response: Response) {
        if let CallOutcome::Exception(exception) = &response.outcome
            && (response.call_id == CONNECTION_CALL
                || exception.class() == ExceptionClass::Connection)
        {
            self.close(&DisconnectReason::Refused(exception.clone()));
            return;
        }
        let Some(waiter) = self.map.lock().waiters.remove(&response.call_id) else {
            tracing::debug!(call_id = response.call_id, "response to an unknown call");
            return;
        };
        let server = self.server.clone();
        // The receiver may have been dropped meanwhile.
        let _ = waiter.result.send(match response.outcome {
            CallOutcome::Response(body) => Ok(body),
            CallOutcome::Exception(exception) => Err(CallError::Remote { server, exception }),
            CallOutcome::Undecodable(error) => Err(CallError::invalid_response(&server, error)),
        });
    }

    /// Closes the connection after its stream has ended or failed.
    pub(super) fn disconnected(&self, reason: &DisconnectReason) {
        let silent = matches!(reason, DisconnectReason::ClosedByServer)
            && self.last_data_ms.load(Ordering::Relaxed) == 0
            && self.is_open();
        if silent {
            self.close(&self.silent_closes.record_silent_close());
        } else {
            self.close(reason);
        }
    }

    /// Closes the connection and fails all pending calls. The first reason is kept.
    pub(super) fn close(&self, reason: &DisconnectReason) {
        let waiters = {
            let mut map = self.map.lock();
            if map.closed.is_some() {
                return;
            }
            map.closed = Some(reason.clone());
            std::mem::take(&mut map.waiters)
        };
        self.closed.cancel();
        for waiter in waiters.into_values() {
            let _ = waiter.result.send(Err(self.error(waiter.sent, reason.clone())));
        }
    }

    /// Returns the error of a call that the end of the connection has failed.
    pub(super) fn error(&self, sent: bool, reason: DisconnectReason) -> CallError {
        CallError::Disconnected { server: self.server.clone(), sent, reason }
    }
}

/// A pending call; dropping it removes its id.
#[derive(Debug)]
pub(super) struct PendingCall {
    id: u32,
    result: oneshot::Receiver<Result<ResponseBody, CallError>>,
    calls: Arc<PendingCalls>,
}

impl PendingCall {
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) async fn result(&mut self) -> Result<ResponseBody, CallError> {
        // The sender is dropped without a result only with the whole map.
        let closed = |_| Err(self.calls.error(true, DisconnectReason::Closed));
        (&mut self.result).await.unwrap_or_else(closed)
    }

    /// Times the call out after `waited` and closes the connection if it is dead. Returns true if the
    /// request was sent.
    pub(super) fn time_out(self, waited: Duration) -> bool {
        let sent = self.calls.map.lock().waiters.remove(&self.id).is_some_and(|waiter| waiter.sent);
        let timeouts = self.calls.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let without_data = self.calls.time_without_data();
        let long_timeout = sent && waited >= LONG_TIMEOUT && without_data >= waited;
        if long_timeout || timeouts >= DEAD_TIMEOUTS && without_data >= DEAD_DURATION {
            self.calls.close(&DisconnectReason::Dead);
        }
        sent
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.calls.map.lock().waiters.remove(&self.id);
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

    fn calls() -> Arc<PendingCalls> {
        Arc::new(PendingCalls::new(
            ServerName::new("rs", 1, 1),
            Arc::new(SilentCloseTracker::new("a test")),
        ))
    }

    #[tokio::test]
    async fn response_completes_only_its_call() {
        let calls = calls();
        let (mut one, mut two) = (calls.register().unwrap(), calls.register().unwrap());
        calls.complete(response(two.id(), Some("java.io.IOException")));
        calls.complete(response(one.id(), None));
        assert!(one.result().await.is_ok());
        assert!(matches!(two.result().await, Err(CallError::Remote { .. })));
        // Unknown ids.
        calls.complete(response(two.id(), None));
        calls.complete(response(77, None));
        assert!(calls.is_open());
    }

    #[tokio::test]
    async fn ids_wrap_and_skip_those_in_use() {
        let calls = calls();
        let first = calls.register().unwrap();
        assert_eq!(first.id(), 0);
        calls.map.lock().next_id = i32::MAX as u32;
        assert_eq!(calls.register().unwrap().id(), i32::MAX as u32);
        assert_eq!(calls.register().unwrap().id(), 1);
        drop(first);
        calls.map.lock().next_id = 0;
        assert_eq!(calls.register().unwrap().id(), 0);
    }

    #[tokio::test]
    async fn dropped_call_is_removed() {
        let calls = calls();
        let id = calls.register().unwrap().id();
        assert!(calls.map.lock().waiters.is_empty());
        assert_eq!(calls.mark_sent([id].into_iter()), [false]);
    }

    #[tokio::test]
    async fn disconnect_tells_sent_from_unsent_calls() {
        let calls = calls();
        let (mut sent, mut unsent) = (calls.register().unwrap(), calls.register().unwrap());
        assert_eq!(calls.mark_sent([sent.id()].into_iter()), [true]);
        calls.data_received();
        calls.disconnected(&DisconnectReason::ClosedByServer);
        calls.close(&DisconnectReason::Dead);
        for (call, expected) in [(&mut sent, true), (&mut unsent, false)] {
            let Err(CallError::Disconnected { sent, reason, .. }) = call.result().await else {
                panic!()
            };
            assert_eq!(sent, expected);
            assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
        }
        assert!(calls.register().is_err());
    }

    #[tokio::test]
    async fn exceptions_of_the_connection_close_it() {
        for (id, class) in
            [(CONNECTION_CALL, "x.AccessDeniedException"), (0, "x.ipc.FatalConnectionException")]
        {
            let calls = calls();
            let mut call = calls.register().unwrap();
            calls.complete(response(id, Some(class)));
            let result = call.result().await;
            assert!(
                matches!(
                    &result,
                    Err(CallError::Disconnected { reason: DisconnectReason::Refused(_), .. })
                ),
                "{result:?}"
            );
        }
    }

    #[tokio::test]
    async fn only_a_close_without_received_data_is_silent() {
        let silent = calls();
        let mut call = silent.register().unwrap();
        silent.disconnected(&DisconnectReason::ClosedByServer);
        let Err(CallError::Disconnected { reason, .. }) = call.result().await else { panic!() };
        assert!(matches!(reason, DisconnectReason::SilentClose { count: 1, .. }), "{reason}");
        let connected = calls();
        let mut call = connected.register().unwrap();
        connected.data_received();
        connected.disconnected(&DisconnectReason::ClosedByServer);
        let Err(CallError::Disconnected { reason, .. }) = call.result().await else { panic!() };
        assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
    }

    #[tokio::test]
    async fn consecutive_timeouts_without_received_data_close_the_connection() {
        pause();
        let time_out = |calls: &Arc<PendingCalls>| {
            let call = calls.register().unwrap();
            calls.mark_sent([call.id()].into_iter());
            assert!(call.time_out(DEAD_DURATION));
        };
        let hasty = calls();
        let calls = calls();
        advance(DEAD_DURATION * 2).await;
        time_out(&calls);
        assert!(calls.is_open());
        // Data in between resets the count.
        calls.data_received();
        advance(DEAD_DURATION * 2).await;
        time_out(&calls);
        assert!(calls.is_open());
        time_out(&calls);
        assert!(!calls.is_open());
        // Short timeouts right after received data do not count.
        hasty.data_received();
        for _ in 0..10 {
            time_out(&hasty);
        }
        assert!(hasty.is_open());
    }

    #[tokio::test]
    async fn only_an_idle_connection_is_closed_as_idle() {
        let calls = calls();
        let call = calls.register().unwrap();
        calls.close_if_idle();
        assert!(calls.is_open());
        drop(call);
        calls.close_if_idle();
        assert!(!calls.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn one_long_timeout_without_received_data_closes_the_connection() {
        let register = |calls: &Arc<PendingCalls>| {
            let call = calls.register().unwrap();
            calls.mark_sent([call.id()].into_iter());
            call
        };
        let calls = calls();
        calls.data_received();
        let call = register(&calls);
        advance(LONG_TIMEOUT / 2).await;
        calls.data_received();
        advance(LONG_TIMEOUT / 2).await;
        assert!(call.time_out(LONG_TIMEOUT));
        assert!(calls.is_open());
        calls.data_received();
        let call = register(&calls);
        advance(LONG_TIMEOUT).await;
        assert!(call.time_out(LONG_TIMEOUT));
        assert!(!calls.is_open());
    }
}
