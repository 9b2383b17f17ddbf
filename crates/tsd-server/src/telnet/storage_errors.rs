//! What a telnet connection does while the store accepts no points.
//!
//! By default the connection waits: the session holds the points that were read, nothing but
//! commands is read, and TCP holds the client up. By setting it is closed with the reason instead.
//! Either way the client receives how many of its points were not stored.

use std::{io, pin::pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{sleep, timeout},
};
use tsd_engine::PointFailure;
use tsd_protocol::{AdminCommand, LineSplitter, TelnetCommand};

use super::{connection::Connection, executor::Executor};

/// How long commands wait for the points before them. After that they are executed at once.
const COMMAND_DELAY: Duration = Duration::from_millis(100);
/// How long a full queue of error lines waits for a client that does not read them.
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of one discarded read.
const DISCARD_BYTES: usize = 16 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the points of a read. Waits while the write shards are full or the store accepts
    /// nothing; `command`, and commands that follow it, are executed meanwhile. Returns the command
    /// if it is still to be executed, and false if the connection is to be closed.
    pub(super) async fn send_points(
        &mut self,
        mut command: Option<AdminCommand>,
    ) -> io::Result<(Option<AdminCommand>, bool)> {
        self.lines.count_received();
        let Self { io, read_buffer, lines, .. } = self;
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
        // The points wait, however little is read meanwhile.
        let _of_points = read_buffer.take_point_memory();
        let mut may_read = true;
        // The points must be sent even if the connection fails meanwhile.
        let mut end = Ok(true);
        loop {
            if let Some(next) = command.take() {
                end = executor.execute(next, io).await;
            }
            if !matches!(end, Ok(true)) {
                send.await;
                return end.map(|keep_open| (None, keep_open));
            }
            let mut split = LineSplitter::new(read_buffer.bytes());
            if may_read && let Some(line) = split.next() {
                if let TelnetCommand::Admin(next) = executor.commands.parse(line) {
                    command = Some(next);
                    let consumed = split.consumed();
                    read_buffer.consume(consumed);
                    executor.state.metrics.received_telnet.add(1);
                    continue;
                }
                // A point: nothing is read until those before it are accepted.
                may_read = false;
            }
            let limit = executor.state.config.limits.telnet_line_bytes;
            if !may_read || read_buffer.bytes().len() > limit {
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

    /// Reports the failures known by now.
    pub(super) async fn report_failures(&mut self) -> io::Result<()> {
        while let Ok(failure) = self.failures.try_recv() {
            self.report_failure(&failure).await?;
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

    /// Sends queued errors if they are many, and waits for a client that reads, but not as fast as
    /// it fails.
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

    /// True if a point was not stored and the connection does not hold points.
    pub(super) fn must_close(&self) -> bool {
        !self.lines.state.config.telnet_holds_points && !self.unstored.is_empty()
    }

    /// Waits until every point that was read is stored or has failed, reports failures, and closes
    /// the connection.
    pub(super) async fn finish(mut self) {
        let grace = self.lines.state.config.limits.half_close_grace;
        // Held points keep the connection open: its slot bounds their number.
        self.lines.session.drain().await;
        // After the grace period failures are not reported.
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
                self.discard_input(grace).await;
            }
        }
    }

    /// Reads what the client sends until it closes: unread bytes would reset the connection, and
    /// the client might not receive the reason.
    async fn discard_input(&mut self, grace: Duration) {
        let mut discarded = vec![0; DISCARD_BYTES];
        let until_closed = async { while let Ok(1..) = self.io.read(&mut discarded).await {} };
        tokio::select! {
            () = until_closed => {}
            () = sleep(grace) => {}
        }
    }
}
