//! Processes the lines of a telnet connection: points go to the ingest session, and their errors to the client.
//!
//! `rollup_histogram_lines.rs` handles `rollup` and `histogram` lines. The connection owns the socket and the read
//! buffer.

use std::{
    fmt::{Display, Write},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use tsd_engine::{IngestSession, PointFailure, PutError, Sample, SampleContent};
use tsd_model::PointValue;
use tsd_protocol::{
    AdminCommand, InputLine, Latin1, LineSplitter, PutErrorKind, PutLine, PutLineError,
    RollupError, SeriesRules, TelnetCommand, TelnetCommands, TelnetPutError, reply as telnet_reply,
};

use super::{access::TelnetAccess, unstored::Unstored, write_buffer::WriteBuffer};
use crate::{
    auth::Identity,
    identity_limits::LimitedSender,
    put_error_mapping::{telnet_cause, to_telnet_error},
    refused_points::RefusalCause,
    server_state::ServerState,
};

/// Point tags that identify the command in failures.
const PUT: u32 = 0;
pub(super) const ROLLUP: u32 = 1;
pub(super) const HISTOGRAM: u32 = 2;

/// Lines to process before other tasks may run: slightly more than a read of typical points.
const LINES_PER_SLICE: u64 = 8 << 10;
/// Lines with an error, which cost more than points, to process before other tasks may run.
const ERRORS_PER_SLICE: u64 = 128;

/// Processes the lines of a connection.
pub(super) struct LineProcessor {
    pub(super) splitter: LineSplitter,
    pub(super) state: Arc<ServerState>,
    pub(super) peer: SocketAddr,
    pub(super) commands: TelnetCommands,
    pub(super) rules: Arc<SeriesRules>,
    pub(super) session: IngestSession,
    pub(super) access: TelnetAccess,
    /// True if the user may not put points.
    pub(super) refuses_points: bool,
    /// The sender of the points, if its identity is limited or counted.
    pub(super) sender: Option<LimitedSender>,
    /// How long the connection must not be read, because its identity sent too many points.
    pub(super) pause: Option<Duration>,
    pub(super) write_buffer: WriteBuffer,
    /// Scratch space for replies.
    pub(super) reply_text: String,
    /// Scratch space for tags.
    pub(super) tag_buffer: Vec<u8>,
    /// Lines not yet added to the metrics.
    pub(super) received: ReceivedCounts,
}

/// Lines and points read since the metrics were last updated.
#[derive(Debug, Default)]
pub(super) struct ReceivedCounts {
    lines: u64,
    points: u64,
    /// Lines with an error, which have no metric of their own.
    errors: u64,
}

/// Why a line was rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteLineError {
    #[error(transparent)]
    Line(#[from] PutLineError),
    #[error(transparent)]
    Fault(#[from] RollupError),
    #[error(transparent)]
    Engine(#[from] PutError),
}

impl LineProcessor {
    /// Processes complete lines up to a command with a reply, until many errors are queued for a
    /// client that reads, or until other tasks should run. Returns the number of consumed bytes.
    pub(super) fn process_lines(&mut self, bytes: &[u8]) -> (usize, Option<AdminCommand>) {
        let mut consumed = 0;
        // Passes points to the session in groups, in the order of the lines.
        let mut group = Vec::with_capacity(IngestSession::GROUP);
        while !self.is_slice_over()
            && let Some(line) = self.splitter.next_line(bytes, &mut consumed)
        {
            self.received.lines += 1;
            let line = match line {
                InputLine::Complete(line) => line,
                InputLine::TooLong(beginning) => {
                    self.put_points(&mut group);
                    self.report_long_line(beginning);
                    if self.must_send_errors() {
                        break;
                    }
                    continue;
                }
            };
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
                return (consumed, Some(command));
            }
        }
        self.put_points(&mut group);
        (consumed, None)
    }

    /// Returns true if other tasks should run after the lines since [`Self::count_received`].
    const fn is_slice_over(&self) -> bool {
        self.received.errors >= ERRORS_PER_SLICE || self.received.lines >= LINES_PER_SLICE
    }

    /// Reports a line that is longer than the limit.
    #[cold]
    fn report_long_line(&mut self, beginning: &[u8]) {
        let command = match self.commands.parse(beginning) {
            TelnetCommand::Put => Some("put"),
            TelnetCommand::Rollup => Some("rollup"),
            TelnetCommand::Histogram => Some("histogram"),
            TelnetCommand::Admin(_) | TelnetCommand::Unknown(_) => None,
        };
        let limit = self.state.config.limits.telnet_line_bytes;
        let text = telnet_reply::line_too_long(command, limit);
        self.state.metrics.telnet_long_lines.increment(1);
        if command.is_some() {
            self.received.points += 1;
            self.state.metrics.put_errors(PutErrorKind::IllegalArgument).add(1);
        }
        let cause = RefusalCause::Kind(PutErrorKind::IllegalArgument);
        self.log_refused(cause, &text.trim_end(), &Latin1(beginning));
        self.queue(text.as_bytes());
    }

    /// Adds the point of a line to the group, or reports why the line cannot be parsed.
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

    /// Returns true if queued errors must be sent before further errors are queued.
    pub(super) fn must_send_errors(&self) -> bool {
        self.write_buffer.is_half_full() && self.write_buffer.is_read()
    }

    /// Processes a line other than `put`; returns the command if it has a reply.
    fn process_command(&mut self, line: &[u8], command: TelnetCommand<'_>) -> Option<AdminCommand> {
        match command {
            // Unreachable, since the caller groups points.
            TelnetCommand::Put => {}
            TelnetCommand::Rollup | TelnetCommand::Histogram => {
                self.received.points += 1;
                match (command == TelnetCommand::Rollup, self.refuses_points) {
                    (true, false) => self.rollup(line),
                    (true, true) => self.refuse_point("rollup"),
                    (false, false) => self.histogram(line),
                    (false, true) => self.refuse_point("histogram"),
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
    pub(super) fn count_received(&mut self) {
        let received = std::mem::take(&mut self.received);
        self.state.metrics.received_telnet.add(received.lines);
        self.state.metrics.received_put.add(received.points);
        if let Some(sender) = &self.sender {
            self.pause = sender.count_points(received.points).or(self.pause);
        }
    }

    /// Reports a rejected line.
    #[cold]
    pub(super) fn report_line_error(
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
    pub(super) fn report_syntax_error(
        &mut self,
        command: &str,
        error: &PutLineError,
        line: &dyn Display,
    ) {
        self.state.metrics.put_errors(error.kind()).add(1);
        self.log_refused(RefusalCause::Kind(error.kind()), error, line);
        self.reply_line(command, error);
    }

    /// Reports a point that the engine did not store.
    #[cold]
    pub(super) fn report(&mut self, failure: &PointFailure) {
        let command = match failure.tag {
            HISTOGRAM => return self.report_histogram(failure),
            ROLLUP => "rollup",
            _ => "put",
        };
        let reply = to_telnet_error(&failure.error);
        self.reply_error(command, &reply, failure.series.as_deref());
    }

    /// Reports an error of a point, with its known fields.
    pub(super) fn reply_error(
        &mut self,
        command: &str,
        reply: &TelnetPutError,
        point: Option<&str>,
    ) {
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
        self.received.errors += 1;
        if !self.write_buffer.queue(line) {
            self.state.metrics.socket_writes_blocked.add(1);
        }
    }
    pub(super) fn set_user(&mut self, identity: Identity, epoch: u64) {
        self.session.restrict(identity.creatable_names(), identity.rights().clone());
        self.access = TelnetAccess::User { identity, epoch };
        self.refuses_points = self.access.refuses_points();
        self.set_sender();
    }

    /// Limits the points by the identity of the connection.
    pub(super) fn set_sender(&mut self) {
        self.sender = self.state.limited_sender(self.access.identity(), self.peer.ip());
        let allowance = self.sender.as_ref().map(LimitedSender::new_series);
        self.session.limit_new_series(allowance);
    }

    /// Rejects a line with a point if the user lacks the permission.
    #[cold]
    fn refuse_point(&mut self, command: &str) {
        let user = self.access.identity().map_or("", |identity| identity.name()).to_owned();
        let reason = format!("user {user:?} does not have the permission TELNET_PUT");
        self.state.log_refusal(self.peer.ip(), &self.state.metrics.forbidden_telnet, &reason);
        self.state.metrics.put_errors(PutErrorKind::IllegalArgument).add(1);
        self.reply_line(command, &format_args!("{}", telnet_reply::unauthorized_command(command)));
    }

    /// Tells the client how many points were not stored, and how many lines were not processed.
    #[expect(clippy::naive_bytecount, reason = "once per connection")]
    pub(super) fn report_unstored(&mut self, unstored: &Unstored, unprocessed: &[u8]) {
        let unprocessed = unprocessed.iter().filter(|byte| **byte == b'\n').count();
        let Unstored { points, reason } = unstored;
        let text = format_args!(
            "closing the connection: {reason}; {points} points were not stored, {unprocessed} \
             lines were not processed"
        );
        self.write_buffer.make_room();
        self.reply_line("put", &text);
    }
}

/// Displays a parsed point as a line.
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
