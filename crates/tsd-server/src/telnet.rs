//! The telnet protocol.
//!
//! Each connection is one loop. It reads available bytes, adds every point to an ingest session and
//! sends them with one call. While the write shards are full or the store accepts nothing, that call
//! waits, only commands are read, and TCP slows the client down. Errors of points are queued for the
//! client and dropped if it does not read.

mod access;
mod read_buffer;
mod rollup_histogram_lines;
mod storage_errors;
mod write_buffer;

use std::{
    fmt::{Display, Write},
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::timeout_at,
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::{debug, info};
use tsd_engine::{IngestSession, NameText, PointFailure, PutError, Sample, SampleContent};
use tsd_model::PointValue;
use tsd_protocol::{
    AdminCommand, Latin1, LineSplitter, PutErrorKind, PutLine, PutLineError, RollupError,
    SeriesRules, TelnetCommand, TelnetCommands, TelnetPutError, reply as telnet_reply,
};

use self::{
    access::{LoginProgress, TelnetAccess},
    read_buffer::ReadBuffer,
    storage_errors::Unstored,
    write_buffer::WriteBuffer,
};
use crate::{
    auth::Identity,
    put_error_mapping::{telnet_cause, to_telnet_error},
    refused_points::RefusalCause,
    server_state::ServerState,
    stats::Stats,
    timeout_io::{RequestTracker, TimeoutIo},
};

/// Point tags that identify the command in failures.
const PUT: u32 = 0;
const ROLLUP: u32 = 1;
const HISTOGRAM: u32 = 2;

/// Serves telnet until the connection closes.
pub(crate) async fn serve<S>(
    state: Arc<ServerState>,
    io: TimeoutIo<S>,
    tracker: Arc<RequestTracker>,
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
    let mut connection = Connection {
        io,
        tracker,
        read_buffer: ReadBuffer::new(state.memory().clone()),
        lines: LineProcessor {
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
            reply_text: String::new(),
            tag_buffer: Vec::new(),
            received: ReceivedCounts::default(),
            state: Arc::clone(&state),
            peer,
        },
        failures,
        unstored: Unstored::default(),
        stopping: Box::pin(state.stopping.clone().cancelled_owned()),
    };
    let ended = connection.run().await;
    connection.finish().await;
    ended
}

/// A telnet connection.
struct Connection<S> {
    io: TimeoutIo<S>,
    tracker: Arc<RequestTracker>,
    read_buffer: ReadBuffer,
    lines: LineProcessor,
    failures: mpsc::UnboundedReceiver<PointFailure>,
    unstored: Unstored,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Processes lines: everything but the socket and the read buffer.
struct LineProcessor {
    state: Arc<ServerState>,
    peer: SocketAddr,
    commands: TelnetCommands,
    rules: Arc<SeriesRules>,
    session: IngestSession,
    access: TelnetAccess,
    /// True if the user may not put points.
    refuses_points: bool,
    write_buffer: WriteBuffer,
    /// Scratch space for replies.
    reply_text: String,
    /// Scratch space for tags.
    tag_buffer: Vec<u8>,
    /// Lines not yet added to the metrics.
    received: ReceivedCounts,
}

/// Executes commands with a reply: everything but the points.
struct Executor<'a> {
    state: &'a Arc<ServerState>,
    peer: SocketAddr,
    identity: Option<&'a Identity>,
    commands: TelnetCommands,
    write_buffer: &'a mut WriteBuffer,
}

/// Maximum reads after shutdown started: bytes already received are processed, but a client that
/// keeps sending does not delay the shutdown.
const MAX_READS_WHILE_STOPPING: u32 = 32;

/// Next event of a connection.
enum ConnectionEvent {
    /// Bytes read; 0 is the end of input.
    Read(usize),
    /// A point sent earlier could not be stored.
    Failed(PointFailure),
    /// No input, and shutdown has started.
    Stopping,
}

/// Lines and points read since the metrics were last updated.
#[derive(Debug, Default)]
struct ReceivedCounts {
    lines: u64,
    points: u64,
}

/// Why a line was rejected.
#[derive(Debug, thiserror::Error)]
enum WriteLineError {
    #[error(transparent)]
    Line(#[from] PutLineError),
    #[error(transparent)]
    Fault(#[from] RollupError),
    #[error(transparent)]
    Engine(#[from] PutError),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut last_reads = 0;
        let mut rechecked = false;
        loop {
            if self.must_close() {
                return Ok(());
            }
            let deadline = self.lines.access.deadline();
            if self.lines.state.stopping.is_cancelled() {
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
                    Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                },
            };
            match event {
                ConnectionEvent::Failed(failure) => self.report_failure(&failure).await?,
                ConnectionEvent::Stopping if rechecked => return Ok(()),
                ConnectionEvent::Stopping => {
                    // The runtime may not have polled bytes that are already received.
                    rechecked = true;
                    tokio::task::yield_now().await;
                }
                ConnectionEvent::Read(0) => return Ok(()),
                ConnectionEvent::Read(n) => {
                    self.lines.state.metrics.telnet_read_bytes.increment(n as u64);
                    // The bytes belong to a request, so waiting for the write shards is not idle
                    // time.
                    let active_request = self.tracker.request_received();
                    let keep_open = self.process_input().await?;
                    drop(active_request);
                    if !keep_open {
                        return Ok(());
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
        if let Poll::Ready(read) = self.read_buffer.poll_read(cx, &mut self.io) {
            return Poll::Ready(read.map(ConnectionEvent::Read));
        }
        // Polled last, so that bytes received before shutdown are processed.
        self.stopping.as_mut().poll(cx).map(|()| Ok(ConnectionEvent::Stopping))
    }

    /// Processes every complete line. Returns false to close the connection.
    async fn process_input(&mut self) -> io::Result<bool> {
        match self.log_in().await? {
            LoginProgress::Authenticated => {}
            LoginProgress::NeedsLine => return self.check_line_length(),
            LoginProgress::Closes => return Ok(false),
        }
        loop {
            let (consumed, command) = self.lines.process_lines(self.read_buffer.bytes());
            self.read_buffer.consume(consumed);
            let ends_read = command.is_none();
            let (command, keep_open) = self.send_points(command).await?;
            if !keep_open {
                return Ok(false);
            }
            self.report_failures().await?;
            self.send_errors().await?;
            if self.must_close() {
                return Ok(false);
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
                    return Ok(false);
                }
            } else if ends_read && !self.has_line() {
                break;
            }
        }
        self.check_line_length()
    }

    /// Fails if an unfinished line is too long.
    fn check_line_length(&self) -> io::Result<bool> {
        let limit = self.lines.state.config.limits.telnet_line_bytes;
        if self.read_buffer.bytes().len() > limit {
            debug!(limit, "a telnet line is too long");
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(true)
    }

    /// True if a complete line is buffered.
    fn has_line(&self) -> bool {
        LineSplitter::new(self.read_buffer.bytes()).next().is_some()
    }
}

impl Executor<'_> {
    /// Executes a command. Returns false to close the connection.
    async fn execute<S: AsyncWrite + Unpin>(
        &mut self,
        command: AdminCommand,
        io: &mut S,
    ) -> io::Result<bool> {
        let state = Arc::clone(self.state);
        let refused = self.check_admin(command);
        let reply = match command {
            AdminCommand::Exit => return Ok(false),
            _ if let Some(reply) = &refused => reply.clone(),
            AdminCommand::Stats => Stats::collect_with_threads(&state).await.text(),
            AdminCommand::Version => state.config.build.render_text(),
            AdminCommand::Status => telnet_reply::status(state.health().await.state()),
            AdminCommand::Help => telnet_reply::help(self.commands),
            AdminCommand::DropCaches => {
                state.engine.drop_caches();
                telnet_reply::CACHES_DROPPED.to_owned()
            }
            AdminCommand::DieDieDie => {
                info!("a client requested a stop");
                telnet_reply::CLEANING_UP.to_owned()
            }
        };
        let write_timeout = state.config.limits.write_timeout;
        self.write_buffer.reply(io, reply.as_bytes(), write_timeout).await?;
        if matches!(command, AdminCommand::DieDieDie) && refused.is_none() {
            state.stop_requested.cancel();
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the reply to a command that this peer may not send.
    fn check_admin(&self, command: AdminCommand) -> Option<String> {
        let operation = match command {
            AdminCommand::DropCaches => "dropcaches",
            AdminCommand::DieDieDie => "diediedie",
            _ => return None,
        };
        let refused = &self.state.metrics.forbidden_telnet;
        let error =
            self.state.check_admin(self.peer.ip(), self.identity, operation, refused).err()?;
        Some(format!("{error}\n"))
    }
}

/// A parsed point as a line.
struct ShownPoint<'a, 'l>(&'a PutLine<'l>);

impl Display for ShownPoint<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PutLine { metric, timestamp, value, tags_raw } = self.0;
        write!(f, "put {} {} ", Latin1(metric), timestamp.as_given())?;
        match value {
            PointValue::Integer(value) => write!(f, "{value}")?,
            PointValue::Single(value) => write!(f, "{value}")?,
            PointValue::Double(value) => write!(f, "{value}")?,
        }
        write!(f, " {}", Latin1(tags_raw))
    }
}

impl LineProcessor {
    /// Processes complete lines up to a command with a reply, or until many errors are queued for a
    /// client that reads. Returns the number of consumed bytes.
    fn process_lines(&mut self, bytes: &[u8]) -> (usize, Option<AdminCommand>) {
        let mut lines = LineSplitter::new(bytes);
        // Points are passed to the session in groups, in the order of the lines.
        let mut group = Vec::with_capacity(IngestSession::GROUP);
        while let Some(line) = lines.next() {
            self.received.lines += 1;
            let command = self.commands.parse(line);
            if command == TelnetCommand::Put {
                self.received.points += 1;
                if self.refuses_points {
                    self.refuse_point("put");
                    if self.must_send_errors() {
                        break;
                    }
                    continue;
                }
                if let Some(point) = PutLine::parse_plain(line) {
                    group.push(point);
                } else {
                    self.put_unusual_line(line, &mut group);
                }
                if group.len() == IngestSession::GROUP {
                    self.put_points(&mut group);
                }
                if self.must_send_errors() {
                    break;
                }
                continue;
            }
            self.put_points(&mut group);
            if let Some(command) = self.process_command(line, command) {
                return (lines.consumed(), Some(command));
            }
        }
        self.put_points(&mut group);
        (lines.consumed(), None)
    }

    /// Adds the point of a line to the group, or reports why it has none.
    #[inline(never)]
    fn put_unusual_line<'l>(&mut self, line: &'l [u8], group: &mut Vec<PutLine<'l>>) {
        match PutLine::parse(line) {
            Ok(point) => group.push(point),
            Err(error) => {
                self.put_points(group);
                self.report_syntax_error("put", &error, &Latin1(line));
            }
        }
    }

    /// True if queued errors are to be sent before further ones are queued.
    fn must_send_errors(&self) -> bool {
        self.write_buffer.is_half_full() && self.write_buffer.is_read()
    }

    /// Processes a line other than `put`; returns the command if it has a reply.
    fn process_command(&mut self, line: &[u8], command: TelnetCommand<'_>) -> Option<AdminCommand> {
        match command {
            // Not reached: points are grouped by the caller.
            TelnetCommand::Put => {}
            TelnetCommand::Rollup => {
                self.received.points += 1;
                if self.refuses_points {
                    self.refuse_point("rollup");
                } else {
                    self.rollup(line);
                }
            }
            TelnetCommand::Histogram => {
                self.received.points += 1;
                if self.refuses_points {
                    self.refuse_point("histogram");
                } else {
                    self.histogram(line);
                }
            }
            TelnetCommand::Unknown(word) => {
                self.queue(telnet_reply::unknown_command(word).as_bytes());
            }
            TelnetCommand::Admin(command) => return Some(command),
        }
        None
    }

    /// Passes points to the session.
    fn put_points(&mut self, points: &mut Vec<PutLine<'_>>) {
        let Self { session, rules, .. } = self;
        let rejected = session.put(
            points,
            |point| Sample {
                metric: point.metric,
                tags_raw: point.tags_raw,
                timestamp: point.timestamp.as_given(),
                content: SampleContent::Point(point.value),
                tag: PUT,
            },
            |point| Ok(point.tags(rules)?),
        );
        for (at, error) in rejected {
            if let Some(point) = points.get(at) {
                self.report_line_error("put", PUT, error, &ShownPoint(point));
            }
        }
        points.clear();
    }

    /// Adds the lines of a read to the metrics.
    fn count_received(&mut self) {
        let received = std::mem::take(&mut self.received);
        self.state.metrics.received_telnet.add(received.lines);
        self.state.metrics.received_put.add(received.points);
    }

    /// Reports a rejected line.
    #[cold]
    fn report_line_error(
        &mut self,
        command: &str,
        tag: u32,
        error: WriteLineError,
        line: &dyn Display,
    ) {
        match error {
            WriteLineError::Line(error) => self.report_syntax_error(command, &error, line),
            WriteLineError::Fault(error) => {
                let kind = PutErrorKind::IllegalArgument;
                self.state.metrics.put_errors(kind).add(1);
                self.log_refused(RefusalCause::Kind(kind), &error, line);
                self.reply_line(command, &format_args!("{}: {error}", error.class()));
            }
            WriteLineError::Engine(error) => {
                let series = Some(line.to_string().into());
                self.report(&PointFailure { tag, error, series });
            }
        }
    }

    /// Logs a point that was not stored.
    fn log_refused(&self, cause: RefusalCause, reason: &dyn Display, line: &dyn Display) {
        self.state.refused_points.log(self.peer, cause, reason, line);
    }

    /// Reports a line that cannot be parsed.
    #[cold]
    fn report_syntax_error(&mut self, command: &str, error: &PutLineError, line: &dyn Display) {
        self.state.metrics.put_errors(error.kind()).add(1);
        self.log_refused(RefusalCause::Kind(error.kind()), error, line);
        self.reply_line(command, error);
    }

    /// Reports a point that the engine did not store.
    #[cold]
    fn report(&mut self, failure: &PointFailure) {
        let command = match failure.tag {
            HISTOGRAM => return self.report_histogram(failure),
            ROLLUP => "rollup",
            _ => "put",
        };
        let reply = to_telnet_error(&failure.error);
        self.reply_error(command, &reply, failure.series.as_deref());
    }

    /// Reports an error of a point, with what is known of it.
    fn reply_error(&mut self, command: &str, reply: &TelnetPutError, point: Option<&str>) {
        self.state.metrics.put_errors(reply.kind()).add(1);
        self.log_refused(telnet_cause(reply), reply, &point.unwrap_or(command));
        if reply.is_asynchronous() && !self.state.config.telnet_return_errors {
            return;
        }
        self.reply_line(command, reply);
    }

    fn reply_line(&mut self, command: &str, error: &impl Display) {
        let mut reply_text = std::mem::take(&mut self.reply_text);
        reply_text.clear();
        // Writing to memory cannot fail.
        let _ = writeln!(reply_text, "{command}: {error}");
        self.queue(reply_text.as_bytes());
        self.reply_text = reply_text;
    }

    fn queue(&mut self, line: &[u8]) {
        if !self.write_buffer.queue(line) {
            self.state.metrics.socket_writes_blocked.add(1);
        }
    }
}
