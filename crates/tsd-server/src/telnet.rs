//! The telnet protocol: lines in, mostly silence out.
//!
//! A connection is one loop. It reads what there is, hands every point of it to an ingest session, and
//! lets the session pass them on with one call; while the write actors are full that call waits, nothing
//! more is read, and TCP slows the client down. Errors of points are offered to the client and dropped if it
//! does not read.

mod extra_lines;
mod input;
mod output;

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::{debug, info};
use tsd_engine::{IngestSession, NameText, PointFailure, PointInput, PutError};
use tsd_protocol::{
    LineCutter, PutErrorKind, PutLine, PutLineError, RollupFault, SeriesRules, TelnetCommand,
    TelnetCommands, TelnetPutError, reply as telnet_reply,
};

use self::{input::Input, output::Output};
use crate::{
    guarded_io::{GuardedIo, Pulse},
    put_failure::telnet_reply_to,
    shared::Shared,
    stats::Stats,
};

/// What names the command of a point in failures.
const PUT: u32 = 0;
const ROLLUP: u32 = 1;
const HISTOGRAM: u32 = 2;

/// Serves telnet until the connection ends.
pub(crate) async fn serve<S>(
    shared: Arc<Shared>,
    io: GuardedIo<S>,
    pulse: Arc<Pulse>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut session = shared.engine.ingest_session(NameText::Latin1);
    let failures = session.failures();
    let mut connection = Connection {
        io,
        pulse,
        input: Input::new(),
        points: Points {
            commands: TelnetCommands {
                writes: shared.config.mode.writes(),
                die: !shared.config.no_diediedie,
            },
            rules: shared.rules.clone(),
            output: Output::new(shared.config.limits.telnet_reply_bytes),
            session,
            text: String::new(),
            spelled: Vec::new(),
            received: Received::default(),
            shared: Arc::clone(&shared),
        },
        failures,
        stopping: Box::pin(shared.stopping.clone().cancelled_owned()),
    };
    connection.run().await?;
    connection.finish().await;
    Ok(())
}

/// One connection.
struct Connection<S> {
    io: GuardedIo<S>,
    pulse: Arc<Pulse>,
    input: Input,
    points: Points,
    failures: mpsc::Receiver<PointFailure>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The part of a connection that works while lines are cut.
struct Points {
    shared: Arc<Shared>,
    commands: TelnetCommands,
    rules: Arc<SeriesRules>,
    session: IngestSession,
    output: Output,
    /// Scratch for replies.
    text: String,
    /// Scratch for tags.
    spelled: Vec<u8>,
    /// Lines since the counters were last told.
    received: Received,
}

/// Reads after the listener began to stop: what the kernel had received by then is served, but a client
/// that goes on sending does not hold the daemon up.
const LAST_READS: u32 = 32;

/// What comes next on a connection.
enum Event {
    /// So many bytes; 0 ends it.
    Read(usize),
    /// A point sent before could not be stored.
    Failed(PointFailure),
    /// Nothing, and the listener is stopping.
    Stopping,
}

/// What was read since the counters were last told of it.
#[derive(Debug, Default)]
struct Received {
    lines: u64,
    points: u64,
}

/// Why a point was not taken.
enum LineRefusal {
    Line(PutLineError),
    Fault(RollupFault),
    Engine(PutError),
}

impl From<PutLineError> for LineRefusal {
    fn from(error: PutLineError) -> Self {
        Self::Line(error)
    }
}

impl From<RollupFault> for LineRefusal {
    fn from(fault: RollupFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<PutError> for LineRefusal {
    fn from(error: PutError) -> Self {
        Self::Engine(error)
    }
}

/// A command whose answer is awaited.
#[derive(Clone, Copy, Debug)]
enum Order {
    Stats,
    Version,
    Status,
    DropCaches,
    Help,
    Exit,
    DieDieDie,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut last_reads = 0;
        let mut looked_again = false;
        loop {
            if self.points.shared.stopping.is_cancelled() {
                last_reads += 1;
                if last_reads > LAST_READS {
                    return Ok(());
                }
            }
            let event = poll_fn(|cx| self.poll_event(cx)).await?;
            match event {
                Event::Failed(failure) => self.points.report(&failure),
                Event::Stopping if looked_again => return Ok(()),
                Event::Stopping => {
                    // The runtime may not have been told yet of bytes that are there.
                    looked_again = true;
                    tokio::task::yield_now().await;
                }
                Event::Read(0) => return Ok(()),
                Event::Read(n) => {
                    self.points.shared.counters.telnet_read_bytes.increment(n as u64);
                    // The bytes belong to a request, and the client may be made to wait.
                    let answering = self.pulse.request_received();
                    let goes_on = self.work_off().await?;
                    drop(answering);
                    if !goes_on {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        if let Poll::Ready(Some(failure)) = self.failures.poll_recv(cx) {
            return Poll::Ready(Ok(Event::Failed(failure)));
        }
        if let Poll::Ready(Err(error)) = self.points.output.poll_send(cx, &mut self.io) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(read) = self.input.poll_read(cx, &mut self.io) {
            return Poll::Ready(read.map(Event::Read));
        }
        // Only now: what the kernel has received before the end is still served.
        self.stopping.as_mut().poll(cx).map(|()| Ok(Event::Stopping))
    }

    /// Serves every whole line that was read. False ends the connection.
    async fn work_off(&mut self) -> io::Result<bool> {
        loop {
            let (consumed, order) = self.points.take_lines(self.input.bytes());
            self.input.consume(consumed);
            self.points.pass_on().await;
            while let Ok(failure) = self.failures.try_recv() {
                self.points.report(&failure);
            }
            let Some(order) = order else { break };
            if !self.obey(order).await? {
                return Ok(false);
            }
        }
        let limit = self.points.shared.config.limits.telnet_line_bytes;
        if self.input.bytes().len() > limit {
            debug!(limit, "a telnet line is too long");
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(true)
    }

    /// Answers a command. False ends the connection.
    async fn obey(&mut self, order: Order) -> io::Result<bool> {
        let shared = Arc::clone(&self.points.shared);
        let reply = match order {
            Order::Exit => return Ok(false),
            Order::Stats => Stats::collect(&shared).await.text(),
            Order::Version => shared.config.build.render_text(),
            Order::Status => telnet_reply::status(shared.health().await),
            Order::Help => telnet_reply::help(self.points.commands),
            Order::DropCaches => {
                shared.engine.drop_caches();
                telnet_reply::CACHES_DROPPED.to_owned()
            }
            Order::DieDieDie => {
                info!("a client asked the daemon to stop");
                telnet_reply::CLEANING_UP.to_owned()
            }
        };
        let patience = shared.config.limits.write_timeout;
        self.points.output.reply(&mut self.io, reply.as_bytes(), patience).await?;
        if matches!(order, Order::DieDieDie) {
            shared.stop_requested.cancel();
            return Ok(false);
        }
        Ok(true)
    }

    /// Tells of what became of the last points, if the client still listens.
    async fn finish(mut self) {
        let grace = self.points.shared.config.limits.half_close_grace;
        // After the grace nobody is told, and the points are stored all the same.
        let _ = timeout(grace, async {
            self.points.session.drain().await;
            while let Ok(failure) = self.failures.try_recv() {
                self.points.report(&failure);
            }
            poll_fn(|cx| self.points.output.poll_send(cx, &mut self.io)).await?;
            self.io.shutdown().await
        })
        .await;
    }
}

impl Points {
    /// Takes whole lines off `bytes` up to a command that needs an answer. Returns how many bytes they took.
    fn take_lines(&mut self, bytes: &[u8]) -> (usize, Option<Order>) {
        let mut lines = LineCutter::new(bytes);
        // Points go to the session by groups, but never behind what came after them.
        let mut group = Vec::new();
        while let Some(line) = lines.next() {
            self.received.lines += 1;
            let command = self.commands.parse(line);
            if command == TelnetCommand::Put {
                self.received.points += 1;
                match PutLine::parse(line) {
                    Ok(point) => group.push(point),
                    Err(error) => {
                        self.take_points(&mut group);
                        self.refuse("put", &error);
                    }
                }
                if group.len() == IngestSession::GROUP {
                    self.take_points(&mut group);
                }
                continue;
            }
            self.take_points(&mut group);
            if let Some(order) = self.take_other(line, command) {
                return (lines.consumed(), Some(order));
            }
        }
        self.take_points(&mut group);
        (lines.consumed(), None)
    }

    /// Serves a line that is no point, up to an answer that is awaited.
    fn take_other(&mut self, line: &[u8], command: TelnetCommand<'_>) -> Option<Order> {
        let order = match command {
            // Not reached: points go by groups.
            TelnetCommand::Put => return None,
            TelnetCommand::Rollup => {
                self.received.points += 1;
                self.rollup(line);
                return None;
            }
            TelnetCommand::Histogram => {
                self.received.points += 1;
                self.histogram(line);
                return None;
            }
            TelnetCommand::Unknown(word) => {
                self.offer(telnet_reply::unknown_command(word).as_bytes());
                return None;
            }
            TelnetCommand::Stats => Order::Stats,
            TelnetCommand::Version => Order::Version,
            TelnetCommand::Status => Order::Status,
            TelnetCommand::DropCaches => Order::DropCaches,
            TelnetCommand::Help => Order::Help,
            TelnetCommand::Exit => Order::Exit,
            TelnetCommand::DieDieDie => Order::DieDieDie,
        };
        Some(order)
    }

    /// Gives points to the session.
    fn take_points(&mut self, points: &mut Vec<PutLine<'_>>) {
        let Self { session, rules, .. } = self;
        let refused = session.put(
            points,
            |point| PointInput {
                metric: point.metric,
                tags_raw: point.tags_raw,
                timestamp: point.timestamp.as_given(),
                value: point.value,
                tag: PUT,
            },
            |point| Ok(point.tags(rules)?),
        );
        points.clear();
        for (_, why) in refused {
            self.turn_down("put", PUT, why);
        }
    }

    /// Ends the chunk of points; waits while the write actors are full.
    async fn pass_on(&mut self) {
        let received = std::mem::take(&mut self.received);
        self.shared.counters.received_telnet.add(received.lines);
        self.shared.counters.received_put.add(received.points);
        self.session.send().await;
    }

    /// Tells why a point was not taken.
    #[cold]
    fn turn_down(&mut self, command: &str, tag: u32, why: LineRefusal) {
        match why {
            LineRefusal::Line(error) => self.refuse(command, &error),
            LineRefusal::Fault(fault) => {
                self.shared.counters.put_errors(PutErrorKind::IllegalArgument).add(1);
                self.text.clear();
                fault.render(&mut self.text);
                self.offer_text();
            }
            LineRefusal::Engine(error) => self.report(&PointFailure { tag, error }),
        }
    }

    /// Tells of a line that cannot be a point.
    #[cold]
    fn refuse(&mut self, command: &str, error: &PutLineError) {
        self.shared.counters.put_errors(error.kind()).add(1);
        self.text.clear();
        error.render(command, &mut self.text);
        self.offer_text();
    }

    /// Tells of a point that the engine did not store.
    #[cold]
    fn report(&mut self, failure: &PointFailure) {
        let command = match failure.tag {
            HISTOGRAM => return self.report_histogram(&failure.error),
            ROLLUP => "rollup",
            _ => "put",
        };
        let Some(reply) = telnet_reply_to(&failure.error) else {
            self.shared.counters.rpc_exceptions.add(1);
            debug!(error = %failure.error, "a telnet point failed in silence");
            return;
        };
        self.tell(command, &reply);
    }

    fn tell(&mut self, command: &str, reply: &TelnetPutError) {
        self.shared.counters.put_errors(reply.kind()).add(1);
        if reply.is_asynchronous() && !self.shared.config.telnet_return_errors {
            return;
        }
        self.text.clear();
        reply.render(command, &mut self.text);
        self.offer_text();
    }

    fn offer_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.offer(text.as_bytes());
        self.text = text;
    }

    fn offer(&mut self, line: &[u8]) {
        if !self.output.offer(line) {
            self.shared.counters.socket_writes_blocked.add(1);
        }
    }
}
