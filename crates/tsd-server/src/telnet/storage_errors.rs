//! Behaviour of a telnet connection while the store accepts no points.
//!
//! By default the connection waits: the session holds the points that were read, the connection reads
//! only commands, and TCP slows the client down. A setting closes the connection with the reason
//! instead. In both cases the client learns how many of its points were not stored.

use std::{io, pin::pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    task::coop::consume_budget,
    time::timeout,
};
use tsd_engine::PointFailure;
use tsd_protocol::{AdminCommand, InputLine, TelnetCommand};

use super::{connection::Connection, executor::Executor};
use crate::gentle_close::close_gently;

/// How long commands wait for the points before them. After that, commands are executed at once.
const COMMAND_DELAY: Duration = Duration::from_millis(100);
/// How long a full queue of error lines waits for a client that does not read them.
const READER_PATIENCE: Duration = Duration::from_secs(1);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the points of a read. Waits while the write shards are full or the store accepts
    /// nothing, and executes `command` and the following commands meanwhile. Returns the command if it
    /// was not executed, and false if the connection must close.
    pub(super) async fn send_points(
        &mut self,
        mut command: Option<AdminCommand>,
    ) -> io::Result<(Option<AdminCommand>, bool)> {
        self.lines.count_received();
        let Self { io, read_buffer, lines, epoch, .. } = self;
        lines.session.set_receipt(epoch.as_ref().map(|epoch| epoch.receipt()));
        let mut executor = Executor {
            state: &lines.state,
            peer: lines.peer,
            identity: lines.access.identity(),
            commands: lines.commands,
            write_buffer: &mut lines.write_buffer,
        };
        let mut send = pin!(lines.session.send());
        if timeout(COMMAND_DELAY, &mut send).await.is_ok() {
            return Ok((command, true));
        }
        // Keeps the memory of the waiting points while commands are read.
        let _of_points = read_buffer.take_point_memory();
        // The rest of a line that is too long is not a command.
        let mut may_read = !lines.splitter.is_skipping();
        // Sends the points even if the connection fails meanwhile.
        let mut end = Ok(true);
        loop {
            if let Some(next) = command.take() {
                end = executor.execute(next, io).await;
                // A client that reads its replies at once must leave time for other tasks.
                tokio::task::yield_now().await;
            }
            if !matches!(end, Ok(true)) {
                send.await;
                return end.map(|keep_open| (None, keep_open));
            }
            let (mut splitter, mut consumed) = (lines.splitter, 0);
            if may_read && let Some(line) = splitter.next_line(read_buffer.bytes(), &mut consumed) {
                if let InputLine::Complete(line) = line
                    && let TelnetCommand::Admin(next) = executor.commands.parse(line)
                {
                    command = Some(next);
                    read_buffer.consume(consumed);
                    executor.state.metrics.received_telnet.add(1);
                    continue;
                }
                // The next line is a point: reading stops until the store accepts the points before it.
                may_read = false;
            }
            if !may_read {
                send.await;
                return Ok((None, true));
            }
            tokio::select! {
                () = &mut send => return Ok((None, true)),
                read = std::future::poll_fn(|cx| read_buffer.poll_read(cx, io)) => match read {
                    // The main loop sees the end of input again.
                    Ok(0) => may_read = false,
                    Ok(n) => executor.state.metrics.telnet_read_bytes.increment(n as u64),
                    Err(error) => end = Err(error),
                },
            }
        }
    }

    /// Reports the failures known so far.
    pub(super) async fn report_failures(&mut self) -> io::Result<()> {
        while let Ok(failure) = self.failures.try_recv() {
            self.report_failure(&failure).await?;
            consume_budget().await;
        }
        Ok(())
    }

    /// Reports a failure.
    pub(super) async fn report_failure(&mut self, failure: &PointFailure) -> io::Result<()> {
        self.unstored.count(failure);
        self.send_errors().await?;
        self.lines.report(failure);
        Ok(())
    }

    /// Sends queued errors if there are many. Waits for a client that reads its errors more slowly than it
    /// causes them.
    pub(super) async fn send_errors(&mut self) -> io::Result<()> {
        let Self { io, lines, .. } = self;
        if lines.must_send_errors() {
            let sent = std::future::poll_fn(|cx| lines.write_buffer.poll_send(cx, io));
            match timeout(READER_PATIENCE, sent).await {
                Ok(sent) => sent?,
                Err(_) => lines.write_buffer.set_unread(),
            }
        }
        Ok(())
    }

    /// Returns true if a point was not stored and the connection does not hold points.
    pub(super) fn must_close(&self) -> bool {
        !self.lines.state.config.telnet_holds_points && !self.unstored.is_empty()
    }

    /// Waits until every received point is stored or has failed, reports failures, and closes the
    /// connection.
    pub(super) async fn finish(mut self) {
        let grace = self.lines.state.config.limits.half_close_grace;
        // Held points keep the connection open, so the limit of connections bounds their number.
        self.lines.session.drain().await;
        // After the grace period, failures are not reported.
        let reported = timeout(grace, async {
            self.report_failures().await?;
            if !self.unstored.is_empty() {
                self.lines.report_unstored(&self.unstored, self.read_buffer.bytes());
            }
            std::future::poll_fn(|cx| self.lines.write_buffer.poll_send(cx, &mut self.io)).await?;
            self.io.shutdown().await
        })
        .await;
        if !self.unstored.is_empty() {
            self.lines.state.log_unstored(self.unstored.points, &self.unstored.reason);
            if matches!(reported, Ok(Ok(()))) {
                close_gently(&mut self.io, grace).await;
            }
        }
    }
}
