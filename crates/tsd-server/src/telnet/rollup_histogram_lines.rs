//! `rollup` and `histogram` lines.
//!
//! The line of a rolled-up point selects its table; the write path is the same as for a point. As in
//! OpenTSDB, errors of a histogram beyond its syntax are reported as storage errors.

use tsd_engine::{PointFailure, PutError, Sample, SampleContent};
use tsd_meta::UidError;
use tsd_model::Timestamp;
use tsd_protocol::{
    HistogramLine, HistogramLineError, HistogramValue, Latin1, PutLine, PutLineError, RollupError,
    RollupLine, RollupPoint, TelnetPutError, parse_tags,
};

use super::lines::{HISTOGRAM, LineProcessor, ROLLUP, WriteLineError};
use crate::{
    put_error_mapping::to_telnet_error,
    rollups::{RollupInput, RollupWriter, put_one},
};

/// Why a `histogram` line was rejected.
enum HistogramFailure {
    Line(HistogramLineError),
    /// Reported as a storage error.
    Rejected(String),
    Engine(PutError),
}

impl From<PutError> for HistogramFailure {
    fn from(error: PutError) -> Self {
        Self::Engine(error)
    }
}

impl LineProcessor {
    pub(super) fn rollup(&mut self, line: &[u8]) {
        if let Err(error) = self.put_rollup(line) {
            self.report_line_error("rollup", ROLLUP, error, &Latin1(line));
        }
    }

    /// Passes a rolled-up point to the session.
    fn put_rollup(&mut self, line: &[u8]) -> Result<(), WriteLineError> {
        let rules = self.state.rollups.clone();
        let RollupLine { spec, point } = RollupLine::parse(line, rules.is_some())?;
        let Some(rules) = rules else {
            return Err(RollupError::without_configuration(&spec).into());
        };
        let PutLine { metric, timestamp, value, tags_raw } = point;
        let point = RollupPoint { spec, metric, timestamp, value };
        let input = RollupInput { point, tags_raw, separators: (b' ', b'='), tag: ROLLUP };
        let Self { session, rules: series, tag_buffer, .. } = self;
        RollupWriter { session, rules: &rules, series, tag_buffer }
            .put(&input, |tags| Ok(parse_tags(tags)?))
    }

    pub(super) fn histogram(&mut self, line: &[u8]) {
        match self.put_histogram(line) {
            Ok(()) => {}
            Err(HistogramFailure::Line(HistogramLineError::Line(error))) => {
                self.report_syntax_error("histogram", &error, &Latin1(line));
            }
            Err(HistogramFailure::Line(HistogramLineError::Malformed)) => {
                let reply = TelnetPutError::Storage(HistogramLineError::Malformed.to_string());
                self.reply_error("histogram", &reply, Some(&Latin1(line).to_string()));
            }
            Err(HistogramFailure::Rejected(reply_text)) => {
                let line = Latin1(line).to_string();
                self.reply_error("histogram", &TelnetPutError::Storage(reply_text), Some(&line));
            }
            Err(HistogramFailure::Engine(error)) => {
                let series = Some(Latin1(line).to_string().into());
                self.report(&PointFailure { tag: HISTOGRAM, error, series });
            }
        }
    }

    /// Passes a histogram to the session.
    fn put_histogram(&mut self, line: &[u8]) -> Result<(), HistogramFailure> {
        let Some(codecs) = self.state.engine.config().histograms.clone() else {
            return Err(HistogramFailure::Line(PutLineError::HistogramsDisabled.into()));
        };
        let line = HistogramLine::parse(line).map_err(HistogramFailure::Line)?;
        let stored = match line.value.encode(&codecs) {
            Ok(stored) => stored,
            // OpenTSDB names the cause only for histograms in the encoding of a codec.
            Err(_) if matches!(line.value, HistogramValue::Simple(_)) => {
                return Err(HistogramFailure::Line(HistogramLineError::Malformed));
            }
            Err(error) => return Err(HistogramFailure::Rejected(error.to_string())),
        };
        let HistogramLine { metric, tags_raw, timestamp, .. } = line;
        if Timestamp::try_new(timestamp).is_err() {
            return Err(HistogramFailure::Rejected(line.bad_timestamp(&stored).to_string()));
        }
        let content = SampleContent::Histogram(&stored);
        let sample = Sample { metric, tags_raw, timestamp, content, tag: HISTOGRAM };
        let Self { session, rules, .. } = self;
        put_one(session, &sample, || {
            let tags = parse_tags(tags_raw).map_err(|e| HistogramFailure::Line(e.into()))?;
            let checked = rules.check(metric, &tags);
            checked.map_err(|error| HistogramFailure::Rejected(error.to_string()))?;
            Ok(tags)
        })
    }

    /// Reports a histogram that the engine did not store.
    pub(super) fn report_histogram(&mut self, failure: &PointFailure) {
        let reply = match &failure.error {
            PutError::Uid(UidError::NoSuchName { kind, name }) => {
                let kind = kind.as_str();
                TelnetPutError::Storage(format!("No such name for '{kind}': '{name}'"))
            }
            PutError::Throttled(_)
            | PutError::Expired { .. }
            | PutError::Filtered(_)
            | PutError::Forbidden(_)
            | PutError::NewSeriesLimit(_) => to_telnet_error(&failure.error),
            other => TelnetPutError::Storage(other.to_string()),
        };
        self.reply_error("histogram", &reply, failure.series.as_deref());
    }
}
