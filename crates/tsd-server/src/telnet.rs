//! The telnet protocol.
//!
//! Each connection is one loop. It reads available bytes, adds every point to an ingest session and
//! sends them with one call.
//!
//! - While the write shards are full or the store accepts nothing, that call waits. The connection reads
//!   only commands, and TCP slows the client down.
//! - Errors of points are queued for the client, and dropped if the client does not read them.
//! - A connection with few points per read is read at intervals.
//! - A connection whose identity sends more points than it may is read more slowly.

mod access;
mod connection;
mod executor;
mod lines;
mod login;
mod read_buffer;
mod read_pace;
mod rollup_histogram_lines;
mod storage_errors;
mod throttle;
mod unstored;
mod write_buffer;

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::yield_now,
    time::{Instant, timeout_at},
};
use tsd_engine::{LogOrigin, NameText, PointFailure};
use tsd_protocol::{LineSplitter, TelnetCommands};

use self::{
    access::TelnetAccess,
    connection::Connection,
    executor::Executor,
    lines::{LineProcessor, ReceivedCounts},
    login::LoginProgress,
    read_buffer::ReadBuffer,
    read_pace::ReadPace,
    throttle::Throttle,
    unstored::Unstored,
    write_buffer::WriteBuffer,
};
use crate::{
    connection_epoch::ConnectionEpoch, open_connections::OpenConnection, server_state::ServerState,
    timeout_io::TimeoutIo,
};

/// Serves telnet until the connection closes.
pub(crate) async fn serve<S>(
    state: Arc<ServerState>,
    io: TimeoutIo<S>,
    (connection, epoch): (Arc<OpenConnection>, Option<Arc<ConnectionEpoch>>),
    peer: SocketAddr,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut session = state.engine.ingest_session(NameText::Latin1);
    let failures = session.failures();
    if state.config.telnet_holds_points {
        session.hold_points();
    }
    let open = Arc::clone(&connection);
    let mut connection = Connection {
        io,
        tracker: Arc::clone(&connection.tracker),
        read_buffer: ReadBuffer::new(state.memory().clone()),
        pace: ReadPace::new(),
        throttle: Throttle::default(),
        lines: LineProcessor {
            splitter: LineSplitter::new(state.config.limits.telnet_line_bytes),
            commands: TelnetCommands {
                writes: state.config.mode.writes(),
                die: !state.config.no_diediedie,
            },
            rules: state.rules.clone(),
            write_buffer: WriteBuffer::new(
                state.config.limits.telnet_reply_bytes,
                state.memory().clone(),
            ),
            session,
            access: TelnetAccess::new(&state),
            refuses_points: false,
            sender: None,
            pause: None,
            reply_text: String::new(),
            tag_buffer: Vec::new(),
            received: ReceivedCounts::default(),
            state: Arc::clone(&state),
            peer,
        },
        failures,
        unstored: Unstored::default(),
        epoch,
        stopping: Box::pin(connection.closing.clone().cancelled_owned()),
        closing: connection.closing.clone(),
    };
    if state.config.authentication.is_none() {
        connection.lines.set_sender();
    }
    let work = async move {
        connection.log_in_by_certificate(open.certificate_name()).await;
        let ended = connection.run().await;
        connection.finish().await;
        ended
    };
    LogOrigin::of_connection().scope(work).await
}

/// Maximum reads after the start of a shutdown. Received bytes are processed, but a client that keeps
/// sending does not delay the shutdown.
const MAX_READS_WHILE_STOPPING: u32 = 32;

/// Size of a read after which other tasks may run, bytes. The runtime limits the number of smaller reads.
const LARGE_READ: usize = 4 << 10;

/// Next event of a connection.
enum ConnectionEvent {
    /// Bytes read; 0 is the end of input.
    Read(usize),
    /// A point sent earlier could not be stored.
    Failed(PointFailure),
    /// No input, and shutdown has started.
    Stopping,
}

/// Result of processing the lines of a read.
enum Processed {
    /// All lines were points without an error.
    Points,
    /// The client may be waiting for the reply to a line.
    Replied,
    /// The connection must close.
    Closes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut last_reads = 0;
        let mut rechecked = false;
        loop {
            if self.must_close() {
                return Ok(());
            }
            let deadline = self.lines.access.deadline(&self.lines.state);
            if self.closing.is_cancelled() {
                last_reads += 1;
                if last_reads > MAX_READS_WHILE_STOPPING {
                    return Ok(());
                }
            }
            let event = poll_fn(|cx| self.poll_event(cx));
            let event = match deadline {
                None => event.await?,
                Some(deadline) => match timeout_at(deadline, event).await {
                    Ok(event) => event?,
                    Err(_) if self.lines.access.identity().is_some() => {
                        match self.log_in().await? {
                            LoginProgress::Authenticated => continue,
                            // The credential of the user has expired.
                            LoginProgress::NeedsLine | LoginProgress::Closes => return Ok(()),
                        }
                    }
                    Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                },
            };
            match event {
                ConnectionEvent::Failed(failure) => self.report_failure(&failure).await?,
                ConnectionEvent::Stopping if rechecked => return Ok(()),
                ConnectionEvent::Stopping => {
                    // The runtime may not have polled bytes that the system has already received.
                    rechecked = true;
                    self.pace.end();
                    self.throttle.end();
                    yield_now().await;
                }
                ConnectionEvent::Read(0) => return Ok(()),
                ConnectionEvent::Read(n) => {
                    let read_at = Instant::now();
                    self.lines.state.metrics.telnet_read_bytes.increment(n as u64);
                    // The bytes belong to a request, so a wait for the write shards is not idle
                    // time.
                    let active_request = self.tracker.request_received();
                    let processed = self.process_input().await?;
                    self.tracker.set_half_read(!self.read_buffer.bytes().is_empty());
                    match self.lines.pause.take() {
                        Some(pause) if !self.closing.is_cancelled() => {
                            self.throttle.pause(pause, active_request);
                            self.read_buffer.rest();
                        }
                        _ => drop(active_request),
                    }
                    match processed {
                        // After the start of a shutdown, reads are not delayed.
                        Processed::Points if !self.closing.is_cancelled() => {
                            if self.pace.after_points(n, read_at) {
                                self.read_buffer.rest();
                            }
                        }
                        Processed::Points | Processed::Replied => self.pace.end(),
                        Processed::Closes => return Ok(()),
                    }
                    if n >= LARGE_READ {
                        yield_now().await;
                    }
                }
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ConnectionEvent>> {
        if let Poll::Ready(Some(failure)) = self.failures.poll_recv(cx) {
            return Poll::Ready(Ok(ConnectionEvent::Failed(failure)));
        }
        if let Poll::Ready(Err(error)) = self.lines.write_buffer.poll_send(cx, &mut self.io) {
            return Poll::Ready(Err(error));
        }
        if self.throttle.poll(cx).is_ready()
            && self.pace.poll(cx).is_ready()
            && let Poll::Ready(read) = self.read_buffer.poll_read(cx, &mut self.io)
        {
            return Poll::Ready(read.map(ConnectionEvent::Read));
        }
        // Polled last, so that bytes received before shutdown are processed.
        self.stopping.as_mut().poll(cx).map(|()| Ok(ConnectionEvent::Stopping))
    }

    /// Processes every complete line.
    async fn process_input(&mut self) -> io::Result<Processed> {
        match self.log_in().await? {
            LoginProgress::Authenticated => {}
            LoginProgress::NeedsLine => return Ok(Processed::Replied),
            LoginProgress::Closes => return Ok(Processed::Closes),
        }
        let mut processed = Processed::Points;
        loop {
            let (consumed, command) = self.lines.process_lines(self.read_buffer.bytes());
            self.read_buffer.consume(consumed);
            let ends_read = command.is_none();
            let (command, keep_open) = self.send_points(command).await?;
            if !keep_open {
                return Ok(Processed::Closes);
            }
            self.report_failures().await?;
            self.send_errors().await?;
            if self.must_close() {
                return Ok(Processed::Closes);
            }
            if !ends_read || !self.lines.write_buffer.is_empty() {
                processed = Processed::Replied;
            }
            if let Some(command) = command {
                let Self { io, lines, .. } = self;
                let mut executor = Executor {
                    state: &lines.state,
                    peer: lines.peer,
                    identity: lines.access.identity(),
                    commands: lines.commands,
                    write_buffer: &mut lines.write_buffer,
                };
                if !executor.execute(command, io).await? {
                    return Ok(Processed::Closes);
                }
            } else if ends_read && !self.has_line() {
                break;
            }
            // The runtime counts the reads of a client that is always ready, but not the cost of their lines.
            yield_now().await;
        }
        Ok(processed)
    }

    /// Returns true if a complete line is buffered.
    fn has_line(&self) -> bool {
        let mut splitter = self.lines.splitter;
        splitter.next_line(self.read_buffer.bytes(), &mut 0).is_some()
    }
}
