//! Feeds the lines of inputs to a sink of points.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tsd_engine::PutError;
use tsd_meta::UidError;
use tsd_model::{InputFormat, Timestamp};

use super::{
    json_line::{BRACE, JsonLine, JsonLineError},
    line::{ImportLine, LineError},
    order::{NotRising, SeriesOrder},
    source::{MAX_LINE_BYTES, lines, read_ahead},
};
use crate::{
    console::{Console, StopSignal},
    tell,
};

/// Points of an input between two lines of progress, as in OpenTSDB's importer.
const LINE_EVERY: u64 = 1_000_000;
/// How long a stopped import waits for the points that were sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Rules of an import.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent rules")]
pub struct ImportOptions {
    /// Reports and skips invalid lines; otherwise the first invalid line ends the import.
    pub skip_errors: bool,
    /// Timestamps of a series need not increase.
    pub allow_out_of_order: bool,
    /// The inputs are files of the spool: a line may be JSON.
    pub is_spool: bool,
    /// Rounds values with a point or an exponent to single precision, as OpenTSDB's importer does; otherwise stores
    /// them as telnet's `put` does.
    pub as_opentsdb: bool,
    /// Commits each new series before it reads the next line, because UID lookups may reject names.
    pub settle_new_series: bool,
}

/// Result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Stored points.
    pub points: u64,
    /// Skipped lines.
    pub bad_lines: u64,
    /// Points that were sent and had no result when the import was stopped.
    pub unconfirmed: u64,
}

/// Error that ended an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// An input cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The input.
        path: String,
        /// I/O error.
        source: io::Error,
    },
    /// An invalid line, unless errors are skipped.
    #[error("{path} line {line}: {reason}")]
    BadLine {
        /// The input.
        path: String,
        /// Line, from 1.
        line: u64,
        /// The error.
        reason: String,
    },
    /// The store failed.
    #[error("{path} line {line}: cannot be stored: {reason}")]
    Store {
        /// The input.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// A signal stopped it.
    #[error("stopped by {signal} after {path} line {line}")]
    Stopped {
        /// The signal.
        signal: StopSignal,
        /// The input that was read.
        path: String,
        /// The last line that was sent, from 1. Earlier lines are stored unless the total reports otherwise.
        line: u64,
    },
    /// Everything was imported, but the total could not be written to standard output.
    #[error("cannot write: {0}")]
    Total(io::Error),
}

/// Why a line was rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Json(#[from] JsonLineError),
    #[error(transparent)]
    NotRising(#[from] NotRising),
    #[error(transparent)]
    Put(#[from] PutError),
    /// A daemon rejected the point, with this text.
    #[error("{0}")]
    Point(String),
    /// A daemon, or its store, failed.
    #[error("{0}")]
    Daemon(String),
}

impl Refusal {
    /// True if the store failed, so that the next point will fail too.
    fn is_of_store(&self) -> bool {
        match self {
            Self::TooLong | Self::Line(_) | Self::Json(_) | Self::NotRising(_) | Self::Point(_) => {
                false
            }
            Self::Put(error) => !is_about_the_point(error),
            Self::Daemon(_) => true,
        }
    }
}

/// True if the next point may succeed.
fn is_about_the_point(error: &PutError) -> bool {
    match error {
        PutError::NotFinite
        | PutError::BadTimestamp(_)
        | PutError::Expired { .. }
        | PutError::Filtered(_)
        | PutError::Forbidden(_)
        | PutError::NoTags
        | PutError::TooManyTags { .. }
        | PutError::NewSeriesLimit(_)
        | PutError::Name(_)
        | PutError::UnmappableName(_) => true,
        PutError::Uid(error) => matches!(
            error,
            UidError::NoSuchName { .. }
                | UidError::IllegalName { .. }
                | UidError::BlockedByFilter { .. }
                | UidError::SeriesLimit { .. }
        ),
        _ => false,
    }
}

/// An accepted point that was not stored.
#[derive(Debug)]
pub(super) struct SinkFailure {
    /// Its line, from 1.
    pub(super) line: u64,
    pub(super) refusal: Refusal,
}

/// Where imported points go.
pub(super) trait PointSink {
    /// Accepts a point of a line. `is_new` is set if its series may be unknown, so that a rejected point does not
    /// affect the order of timestamps.
    async fn put(
        &mut self,
        point: &ImportLine<'_>,
        line: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal>;

    /// As [`Self::put`], for a line of JSON.
    async fn put_json(
        &mut self,
        json: JsonLine,
        line: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal>;

    /// Sends the points accepted so far, at the pace of the store.
    async fn send(&mut self);

    /// Sends all points and waits for their results.
    async fn drain(&mut self);

    /// Failures since the last call.
    fn take_failures(&mut self) -> Vec<SinkFailure>;

    /// Points known to be stored.
    fn stored(&self) -> u64;
}

/// Imports inputs one after another.
pub(super) struct Importer<'c, S> {
    sink: S,
    order: SeriesOrder,
    options: ImportOptions,
    console: &'c Console,
    /// Bytes read from files.
    read: Arc<AtomicU64>,
    /// Size of all inputs, if each is a file.
    total_bytes: Option<u64>,
    /// Points accepted by the sink.
    accepted: u64,
    /// Accepted points that were then rejected.
    refused: u64,
    bad_lines: u64,
    unconfirmed: u64,
    /// Accepted points of the current input.
    in_input: u64,
    /// Start of the input, or time of the last line of progress.
    line_at: Instant,
}

impl<'c, S: PointSink> Importer<'c, S> {
    pub(super) fn new(
        sink: S,
        options: ImportOptions,
        total_bytes: Option<u64>,
        console: &'c Console,
    ) -> Self {
        Self {
            sink,
            order: SeriesOrder::default(),
            options,
            console,
            read: Arc::default(),
            total_bytes,
            accepted: 0,
            refused: 0,
            bad_lines: 0,
            unconfirmed: 0,
            in_input: 0,
            line_at: Instant::now(),
        }
    }

    pub(super) fn done(&self) -> Imported {
        Imported {
            points: self.sink.stored(),
            bad_lines: self.bad_lines,
            unconfirmed: self.unconfirmed,
        }
    }

    /// Imports one input. Points before an error are kept.
    pub(super) async fn import(&mut self, path: &Path) -> Result<(), ImportError> {
        let name = path.display().to_string();
        let (start, before) = (Instant::now(), self.sink.stored());
        let mut number = 0;
        (self.in_input, self.line_at) = (0, start);
        let read = self.read_blocks(path, &name, &mut number).await;
        let ended = self.end(read, &name, number).await;
        if matches!(ended, Err(ImportError::Stopped { .. })) {
            let known = self.sink.stored() + self.refused;
            self.unconfirmed = self.accepted.saturating_sub(known);
        }
        ended?;
        let points = self.sink.stored() - before;
        let took = start.elapsed();
        let rate = points as f64 / took.as_secs_f64().max(0.001);
        let line = format!(
            "Processed {name} in {} ms, {points} data points ({rate:.1} points/s)\n",
            took.as_millis()
        );
        self.print_progress(&line);
        Ok(())
    }

    /// Waits for the points that were sent; returns why the input ended.
    async fn end(
        &mut self,
        read: Result<(), ImportError>,
        name: &str,
        number: u64,
    ) -> Result<(), ImportError> {
        if let Err(ImportError::Stopped { .. }) = read {
            let _ = timeout(STOP_TIMEOUT, self.sink.drain()).await;
            return read;
        }
        tokio::select! {
            () = self.sink.drain() => {}
            signal = self.console.stop.requested() => return Err(stopped(signal, name, number)),
        }
        // A failure of the store is also the cause of later failed lines.
        self.note_failures(name).and(read)
    }

    async fn read_blocks(
        &mut self,
        path: &Path,
        name: &str,
        number: &mut u64,
    ) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Read { path: name.to_owned(), source };
        let mut blocks = read_ahead(path, Arc::clone(&self.read)).map_err(unreadable)?;
        loop {
            let block = tokio::select! {
                biased;
                signal = self.console.stop.requested() => return Err(stopped(signal, name, *number)),
                block = blocks.recv() => block,
            };
            let Some(block) = block else { return Ok(()) };
            self.take_block(name, &block.map_err(unreadable)?, number).await?;
        }
    }

    async fn take_block(
        &mut self,
        name: &str,
        block: &[u8],
        number: &mut u64,
    ) -> Result<(), ImportError> {
        for line in lines(block) {
            *number += 1;
            match self.take(name, line, *number).await? {
                Ok(()) => self.accept(),
                Err(refusal) => self.refuse(name, *number, &refusal)?,
            }
        }
        let read = self.read.load(Ordering::Relaxed) as f64;
        let share = self.total_bytes.map(|total| read / total.max(1) as f64);
        self.console.show(share, &[(self.accepted, "points")], "");
        tokio::select! {
            () = self.sink.send() => {}
            signal = self.console.stop.requested() => return Err(stopped(signal, name, *number)),
        }
        self.note_failures(name)
    }

    /// Counts a point; prints a line for every million points of an input.
    fn accept(&mut self) {
        self.accepted += 1;
        self.in_input += 1;
        if self.in_input.is_multiple_of(LINE_EVERY) {
            let line = progress_line(self.in_input, self.line_at.elapsed());
            self.line_at = Instant::now();
            self.print_progress(&line);
        }
    }

    /// Prints a line of progress. A failed write does not stop the import; only the total must be written.
    fn print_progress(&self, line: &str) {
        self.console.print(line);
    }

    /// Parses a line and hands its point to the sink.
    async fn take(
        &mut self,
        name: &str,
        line: &[u8],
        number: u64,
    ) -> Result<Result<(), Refusal>, ImportError> {
        if line.len() > MAX_LINE_BYTES {
            return Ok(Err(Refusal::TooLong));
        }
        if self.options.is_spool && line.first() == Some(&BRACE) {
            return self.take_json(name, line, number).await;
        }
        let (point, place) = match self.check(line) {
            Ok(checked) => checked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut is_new = false;
        let result = tokio::select! {
            biased;
            result = self.sink.put(&point, number as u32, &mut is_new) => result,
            signal = self.console.stop.requested() => return Err(stopped(signal, name, number)),
        };
        if let (Err(_), true, Some((place, previous_ms))) = (&result, is_new, place) {
            self.order.retreat(place, previous_ms);
        }
        Ok(result)
    }

    /// As [`Self::take`], for a line of JSON. The spool is not sorted by time.
    async fn take_json(
        &mut self,
        name: &str,
        line: &[u8],
        number: u64,
    ) -> Result<Result<(), Refusal>, ImportError> {
        let json = match JsonLine::parse(line) {
            Ok(json) => json,
            Err(error) => return Ok(Err(error.into())),
        };
        let mut is_new = false;
        tokio::select! {
            biased;
            result = self.sink.put_json(json, number as u32, &mut is_new) => Ok(result),
            signal = self.console.stop.requested() => Err(stopped(signal, name, number)),
        }
    }

    /// Parses a line and checks the order of its series. Returns the index of the series and its previous time.
    fn check<'l>(
        &mut self,
        line: &'l [u8],
    ) -> Result<(ImportLine<'l>, Option<(super::order::SeriesIndex, i64)>), Refusal> {
        let format =
            if self.options.as_opentsdb { InputFormat::Import } else { InputFormat::Telnet };
        let point = ImportLine::parse(line, format)?;
        if self.options.allow_out_of_order {
            return Ok((point, None));
        }
        let place = match self.order.find(point.metric, point.tags_raw) {
            Some(place) => place,
            None => self.order.add(point.metric, point.tags_raw, &point.tags()?),
        };
        let time = Timestamp::try_new(point.timestamp).map_err(PutError::from)?;
        let previous_ms = self.order.advance(place, point.timestamp, time.as_millis())?;
        Ok((point, Some((place, previous_ms))))
    }

    /// Handles asynchronous failures. Reports the first line that failed, and a failure of the store
    /// before an invalid line.
    fn note_failures(&mut self, name: &str) -> Result<(), ImportError> {
        let mut failures = self.sink.take_failures();
        self.refused += failures.iter().filter(|f| !f.refusal.is_of_store()).count() as u64;
        failures.sort_by_key(|failure| (!failure.refusal.is_of_store(), failure.line));
        for SinkFailure { line, refusal } in failures {
            self.refuse(name, line, &refusal)?;
        }
        Ok(())
    }

    /// Reports an invalid line; an error unless errors are skipped.
    fn refuse(&mut self, name: &str, line: u64, refusal: &Refusal) -> Result<(), ImportError> {
        let (path, reason) = (name.to_owned(), chain(refusal));
        if refusal.is_of_store() {
            return Err(ImportError::Store { path, line, reason });
        }
        if !self.options.skip_errors {
            return Err(ImportError::BadLine { path, line, reason });
        }
        self.bad_lines += 1;
        self.console.suspend(|| tell!("{name} line {line}: {reason}, skipped"));
        Ok(())
    }
}

/// OpenTSDB's line after a further million points of an input, which took `took`.
fn progress_line(points: u64, took: Duration) -> String {
    let rate = LINE_EVERY as f64 / took.as_secs_f64().max(0.001);
    format!("... {points} data points in {}ms ({rate:.1} points/s)\n", took.as_millis())
}

fn stopped(signal: StopSignal, name: &str, line: u64) -> ImportError {
    ImportError::Stopped { signal, path: name.to_owned(), line }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_that_of_the_last_million() {
        assert_eq!(
            progress_line(3_000_000, Duration::from_millis(2_500)),
            "... 3000000 data points in 2500ms (400000.0 points/s)\n"
        );
    }
}
