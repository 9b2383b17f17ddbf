//! Feeds the lines of inputs to the engine.

use std::{io, path::Path, time::Instant};

use tokio::sync::mpsc;
use tsd_engine::{
    EngineHandle, IngestSession, NameText, PointFailure, PointInput, PutError, UidError,
};
use tsd_model::Timestamp;

use super::{
    line::{ImportLine, LineError},
    order::{NotRising, SeriesOrder},
    progress::Progress,
    source::{Source, lines},
};

/// Rules of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// Invalid lines are reported and skipped; otherwise the first one ends the import.
    pub skip_errors: bool,
    /// Timestamps of a series need not increase.
    pub allow_out_of_order: bool,
    /// UID lookups may reject names, so each new series is committed before the next line is read.
    pub settle_new_series: bool,
}

/// Result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Stored points.
    pub points: u64,
    /// Skipped lines.
    pub bad_lines: u64,
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
    /// An invalid line, while errors are not skipped.
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
    #[error("{path} line {line}: cannot be stored")]
    Store {
        /// The input.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Why.
        source: PutError,
    },
}

/// Why a line was rejected.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    NotRising(#[from] NotRising),
    #[error(transparent)]
    Put(#[from] PutError),
}

/// Imports inputs one after another.
pub(super) struct Importer {
    session: IngestSession,
    failures: mpsc::UnboundedReceiver<PointFailure>,
    order: SeriesOrder,
    options: ImportOptions,
    progress: Progress,
    done: Imported,
}

impl Importer {
    pub(super) fn new(engine: &EngineHandle, options: ImportOptions, progress: Progress) -> Self {
        let mut session = engine.ingest_session(NameText::Utf8);
        let failures = session.failures();
        let order = SeriesOrder::default();
        Self { session, failures, order, options, progress, done: Imported::default() }
    }

    pub(super) const fn done(&self) -> Imported {
        self.done
    }

    /// Imports one input.
    pub(super) async fn import(&mut self, path: &Path) -> Result<(), ImportError> {
        let name = path.display().to_string();
        let unreadable = |source| ImportError::Read { path: name.clone(), source };
        let mut source = Source::open(path, self.progress.read()).map_err(unreadable)?;
        let (start, before) = (Instant::now(), self.done.points);
        let mut number = 0;
        let result = loop {
            match source.next_block() {
                Err(error) => break Err(unreadable(error)),
                Ok(None) => break Ok(()),
                Ok(Some(block)) => {
                    if let Err(error) = self.take_block(&name, block, &mut number).await {
                        break Err(error);
                    }
                }
            }
        };
        // Points before the invalid line are kept.
        self.session.send().await;
        self.session.drain().await;
        result.and(self.note_failures(&name))?;
        let points = self.done.points - before;
        let took = start.elapsed();
        let rate = points as f64 / took.as_secs_f64().max(0.001);
        self.progress.suspend(|| {
            println!(
                "Processed {name} in {} ms, {points} data points ({rate:.1} points/s)",
                took.as_millis()
            );
        });
        Ok(())
    }

    async fn take_block(
        &mut self,
        name: &str,
        block: &[u8],
        number: &mut u64,
    ) -> Result<(), ImportError> {
        let before = self.done.points;
        for line in lines(block) {
            *number += 1;
            match self.take(line, *number as u32).await {
                Ok(()) => self.done.points += 1,
                Err(refusal) => self.refuse(name, *number, refusal)?,
            }
        }
        self.progress.add(self.done.points - before);
        self.session.send().await;
        self.note_failures(name)
    }

    async fn take(&mut self, line: &[u8], number: u32) -> Result<(), Refusal> {
        let point = ImportLine::parse(line)?;
        let held = if self.options.allow_out_of_order {
            None
        } else {
            let place = match self.order.find(point.metric, point.tags_raw) {
                Some(place) => place,
                None => self.order.add(point.metric, point.tags_raw, &point.tags()?),
            };
            let time = Timestamp::try_new(point.timestamp)
                .map_err(|_| PutError::BadTimestamp(point.timestamp))?;
            Some((place, self.order.advance(place, point.timestamp, time.as_millis())?))
        };
        let settles =
            self.options.settle_new_series && !self.session.is_cached(point.metric, point.tags_raw);
        if settles {
            self.session.send().await;
        }
        let mut is_new = false;
        let mut result = self.put(&point, number, &mut is_new);
        if settles && result.is_ok() {
            let failure = self.session.commit().await.failures.pop();
            result = failure.map_or(Ok(()), |failure| Err(failure.error.into()));
        }
        if let (Err(_), true, Some((place, previous_ms))) = (&result, is_new, held) {
            self.order.retreat(place, previous_ms);
        }
        result
    }

    /// Puts a point into the session; returns true if its series is new.
    fn put(
        &mut self,
        point: &ImportLine<'_>,
        number: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        // Committed alone, since the result decides about the next line.
        let refused = self.session.put(
            std::slice::from_ref(point),
            |point| PointInput {
                metric: point.metric,
                tags_raw: point.tags_raw,
                timestamp: point.timestamp,
                value: point.value,
                tag: number,
            },
            |point| {
                *is_new = true;
                Ok(point.tags()?)
            },
        );
        let refused = refused.into_iter().next();
        refused.map_or(Ok(()), |(_, refusal)| Err(refusal))
    }

    /// Handles asynchronous failures.
    fn note_failures(&mut self, name: &str) -> Result<(), ImportError> {
        while let Ok(failure) = self.failures.try_recv() {
            self.done.points = self.done.points.saturating_sub(1);
            self.refuse(name, u64::from(failure.tag), failure.error.into())?;
        }
        Ok(())
    }

    /// Reports an invalid line; an error unless errors are skipped.
    fn refuse(&mut self, name: &str, line: u64, refusal: Refusal) -> Result<(), ImportError> {
        let path = name.to_owned();
        match refusal {
            Refusal::Put(source) if !is_about_the_point(&source) => {
                Err(ImportError::Store { path, line, source })
            }
            refusal if self.options.skip_errors => {
                self.done.bad_lines += 1;
                self.progress.suspend(|| eprintln!("{name} line {line}: {refusal}, skipped"));
                Ok(())
            }
            refusal => Err(ImportError::BadLine { path, line, reason: refusal.to_string() }),
        }
    }
}

/// True if the next point may succeed.
fn is_about_the_point(error: &PutError) -> bool {
    match error {
        PutError::NotFinite
        | PutError::BadTimestamp(_)
        | PutError::NoTags
        | PutError::TooManyTags { .. }
        | PutError::Name(_)
        | PutError::UnmappableName(_) => true,
        PutError::Uid(error) => matches!(
            error,
            UidError::NoSuchName { .. }
                | UidError::IllegalName { .. }
                | UidError::BlockedByFilter { .. }
        ),
        _ => false,
    }
}
