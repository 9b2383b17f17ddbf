//! `rollup` and `histogram` lines.
//!
//! The line of a rolled-up point selects its table; the write path is that of a point. Errors of a
//! histogram beyond its syntax are reported as storage errors, as in OpenTSDB.

use tsd_engine::{PointFailure, PutError, UidError};
use tsd_protocol::{
    HistogramLine, HistogramLineError, HistogramValue, Latin1, PutLineError, RollupError,
    RollupLine, TelnetPutError, parse_tags,
};

use super::{HISTOGRAM, LineProcessor, ROLLUP, WriteLineError};
use crate::{put_error_mapping::to_telnet_error, rollups::rollup_target};

/// Why a `histogram` line was rejected.
enum HistogramFailure {
    Line(HistogramLineError),
    /// Reported as a storage error.
    Rejected(String),
    Engine(PutError),
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
        let time = point.timestamp.as_given();
        // Fast path: most lines have no aggregator tag and a cached series.
        if !rules.may_name_aggregator(point.tags_raw)
            && let Some(placement) = rules.placement(&spec)
            && !point.timestamp.is_millis()
        {
            let cell = self.session.rollup_cell(rollup_target(&placement), time, point.value)?;
            rules.write_cache_key(point.tags_raw, &placement, b' ', b'=', &mut self.tag_buffer);
            if let Some(put) =
                self.session.put_cell_cached(point.metric, &self.tag_buffer, &cell, ROLLUP)
            {
                return Ok(put?);
            }
        }
        let tags = parse_tags(point.tags_raw)?;
        let placement =
            rules.check(&spec, point.metric, point.timestamp, point.value, &tags, &self.rules)?;
        let cell = self.session.rollup_cell(rollup_target(&placement), time, point.value)?;
        let tags_all = rules.tags(&tags, &placement);
        rules.write_cache_key(point.tags_raw, &placement, b' ', b'=', &mut self.tag_buffer);
        Ok(self.session.put_cell_new(point.metric, &self.tag_buffer, &tags_all, cell, ROLLUP)?)
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
            // OpenTSDB names the cause only of histograms in the encoding of a codec.
            Err(_) if matches!(line.value, HistogramValue::Simple(_)) => {
                return Err(HistogramFailure::Line(HistogramLineError::Malformed));
            }
            Err(error) => return Err(HistogramFailure::Rejected(error.to_string())),
        };
        let HistogramLine { metric, tags_raw, timestamp, .. } = line;
        let Ok(cell) = self.session.histogram_cell(timestamp, &stored) else {
            return Err(HistogramFailure::Rejected(line.bad_timestamp(&stored).to_string()));
        };
        let cached = self.session.put_cell_cached(metric, tags_raw, &cell, HISTOGRAM);
        let put = if let Some(put) = cached {
            put
        } else {
            let tags = parse_tags(tags_raw).map_err(|e| HistogramFailure::Line(e.into()))?;
            if let Err(error) = self.rules.check(metric, &tags) {
                return Err(HistogramFailure::Rejected(error.to_string()));
            }
            self.session.put_cell_new(metric, tags_raw, &tags, cell, HISTOGRAM)
        };
        put.map_err(HistogramFailure::Engine)
    }

    /// Reports a histogram that the engine did not store.
    pub(super) fn report_histogram(&mut self, failure: &PointFailure) {
        let reply = match &failure.error {
            PutError::Uid(UidError::NoSuchName { kind, name }) => {
                let kind = kind.as_str();
                TelnetPutError::Storage(format!("No such name for '{kind}': '{name}'"))
            }
            PutError::Throttled | PutError::Expired { .. } => to_telnet_error(&failure.error),
            other => TelnetPutError::Storage(other.to_string()),
        };
        self.reply_error("histogram", &reply, failure.series.as_deref());
    }
}
