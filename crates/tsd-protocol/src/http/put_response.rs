//! The response of a put: status and body.

use super::{
    extra_fields::{ExtraFields, HistogramFields, NoExtraFields, RollupFields},
    histogram_batch::HistogramBatch,
    point_fields::PointFields,
    put_batch::{PutBatch, RejectedPoint},
    put_error::PutPointError,
    rollup_batch::RollupBatch,
};
use crate::{
    ApiError, QueryString,
    json::{JsonList, JsonObject, JsonReader},
};

/// Options of a put request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Returns counters.
    pub summary: bool,
    /// Returns counters and the failed points.
    pub details: bool,
    /// Responds after the points are stored.
    pub sync: bool,
    /// With `sync`: timeout in milliseconds. 0 is unlimited, as is any negative number in a request.
    pub sync_timeout_ms: u64,
}

impl PutOptions {
    /// Parses the parameters of the URI.
    pub fn parse(query: &QueryString) -> Result<Self, ApiError> {
        let sync_timeout_ms = match query.get("sync_timeout") {
            None => 0,
            Some(text) => text
                .parse::<i64>()
                .map_err(|_| ApiError::new(400, "Unable to parse 'sync_timeout' as a number"))?
                .max(0)
                .cast_unsigned(),
        };
        Ok(Self {
            summary: query.has("summary"),
            details: query.has("details"),
            sync: query.has("sync"),
            sync_timeout_ms,
        })
    }
}

/// The outcome of a put, collected while it runs.
#[derive(Debug, Default)]
pub struct PutOutcome {
    succeeded: u64,
    failed: u64,
    timed_out: u64,
    rejected_any: bool,
    kind: PointKind,
    errors: Vec<(u32, PutPointError)>,
}

/// Kind of the elements of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PointKind {
    #[default]
    Point,
    Rollup,
    Histogram,
}

/// A status and a body; no body with 204.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutResponse {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

impl PutOutcome {
    /// Starts with the rejected points of `batch`.
    #[must_use]
    pub fn new(batch: &PutBatch) -> Self {
        Self::with_rejected(PointKind::Point, batch.rejected())
    }

    /// Like [`Self::new`], for rolled-up points.
    #[must_use]
    pub fn of_rollups(batch: &RollupBatch) -> Self {
        Self::with_rejected(PointKind::Rollup, batch.rejected())
    }

    /// Like [`Self::new`], for histograms.
    #[must_use]
    pub fn of_histograms(batch: &HistogramBatch) -> Self {
        Self::with_rejected(PointKind::Histogram, batch.rejected())
    }

    fn with_rejected(kind: PointKind, rejected: &[RejectedPoint]) -> Self {
        let mut outcome = Self { kind, ..Self::default() };
        for point in rejected {
            outcome.fail(point.offset, point.error.clone());
        }
        outcome
    }

    /// Counts stored points.
    pub fn succeed(&mut self, points: u64) {
        self.succeeded += points;
    }

    /// Records a failed point. `offset` is its offset in the body.
    pub fn fail(&mut self, offset: u32, error: PutPointError) {
        if error == PutPointError::WriteTimedOut {
            self.timed_out += 1;
        } else {
            self.failed += 1;
        }
        self.rejected_any |= error.is_rejection();
        self.errors.push((offset, error));
    }

    /// Counts a failed point without its error, for which there is no memory.
    pub const fn fail_unlisted(&mut self) {
        self.failed += 1;
        self.rejected_any = true;
    }

    /// Returns the failed points.
    #[must_use]
    pub fn errors(&self) -> &[(u32, PutPointError)] {
        &self.errors
    }

    /// Builds the response. `body` is the request body.
    #[must_use]
    pub fn response(&self, options: PutOptions, body: &str) -> PutResponse {
        let detailed = options.summary || options.details;
        if self.failed == 0 && self.timed_out == 0 && !detailed {
            return PutResponse { status: 204, body: Vec::new() };
        }
        if !detailed {
            let error = if self.timed_out > 0 {
                ApiError::put_timed_out(self.succeeded, self.failed, self.timed_out)
            } else {
                ApiError::points_had_errors()
            };
            return PutResponse { status: error.status, body: error.render().into_bytes() };
        }
        let status = if self.rejected_any || self.timed_out > 0 { 400 } else { 200 };
        PutResponse { status, body: self.render(options, body) }
    }

    fn render(&self, options: PutOptions, body: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = JsonObject::open(&mut out);
        object.literal("success", self.succeeded);
        if options.sync_timeout_ms > 0 {
            object.literal("timeouts", self.timed_out);
            object.literal("failed", self.failed);
        } else {
            // The response has no counter of points that missed the deadline of the store.
            object.literal("failed", self.failed + self.timed_out);
        }
        if options.details {
            let mut errors: Vec<&(u32, PutPointError)> = self.errors.iter().collect();
            errors.sort_by_key(|(offset, _)| *offset);
            let mut list = JsonList::open(object.key("errors"));
            for (offset, error) in errors {
                let mut object = JsonObject::open(list.element());
                let out = object.key("datapoint");
                match self.kind {
                    PointKind::Point => echo_point::<NoExtraFields>(body, *offset, out),
                    PointKind::Rollup => echo_point::<RollupFields<'_>>(body, *offset, out),
                    PointKind::Histogram => echo_point::<HistogramFields<'_>>(body, *offset, out),
                }
                object.string("error", &error.to_string());
                object.close();
            }
            list.close();
        }
        object.close();
        out
    }
}

/// Writes the point at `offset` of `body` as received.
fn echo_point<'t, E: ExtraFields<'t>>(body: &'t str, offset: u32, out: &mut Vec<u8>) {
    let mut reader = JsonReader::new_at(body, offset as usize);
    let mut fields = PointFields::default();
    let mut extra = E::default();
    match fields.read_with(&mut reader, &mut extra) {
        Ok(()) => fields.echo(&extra, out),
        Err(_) => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::UnlimitedMemory;

    const PLAIN: PutOptions =
        PutOptions { summary: false, details: false, sync: false, sync_timeout_ms: 0 };
    const SUMMARY: PutOptions = PutOptions { summary: true, ..PLAIN };
    const DETAILS: PutOptions = PutOptions { details: true, ..PLAIN };
    const BODY: &str = r#"[{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}}]"#;

    fn outcome(stored: u64, errors: &[PutPointError]) -> PutOutcome {
        let mut outcome = PutOutcome::default();
        outcome.succeed(stored);
        for error in errors {
            outcome.fail(1, error.clone());
        }
        outcome
    }

    #[track_caller]
    fn check(outcome: &PutOutcome, options: PutOptions, status: u16, body: &str) {
        let response = outcome.response(options, BODY);
        assert_eq!(
            (response.status, String::from_utf8(response.body).unwrap().as_str()),
            (status, body)
        );
    }

    #[test]
    fn success_is_empty_unless_counters_are_asked_for() {
        let good = outcome(2, &[]);
        check(&good, PLAIN, 204, "");
        check(&good, SUMMARY, 200, r#"{"success":2,"failed":0}"#);
        check(&good, DETAILS, 200, r#"{"success":2,"failed":0,"errors":[]}"#);
        let timed = PutOptions { sync: true, sync_timeout_ms: 100, ..DETAILS };
        check(&good, timed, 200, r#"{"success":2,"timeouts":0,"failed":0,"errors":[]}"#);
    }

    #[test]
    fn refused_points_make_it_400() {
        let rejected = outcome(1, &[PutPointError::EmptyMetric]);
        check(&rejected, PLAIN, 400, &ApiError::points_had_errors().render());
        check(&rejected, SUMMARY, 400, r#"{"success":1,"failed":1}"#);
        check(
            &rejected,
            DETAILS,
            400,
            r#"{"success":1,"failed":1,"errors":[{"datapoint":{"metric":"m","timestamp":1,"value":"1","tags":{"a":"b"}},"error":"Metric name was empty"}]}"#,
        );
    }

    #[test]
    fn failures_of_storage_alone_are_400_without_and_200_with_counters() {
        let failed = outcome(1, &[PutPointError::Storage("gone".into())]);
        check(&failed, PLAIN, 400, &ApiError::points_had_errors().render());
        check(&failed, SUMMARY, 200, r#"{"success":1,"failed":1}"#);
    }

    #[test]
    fn timeouts_are_counted_apart() {
        let late = outcome(3, &[PutPointError::WriteTimedOut, PutPointError::WriteTimedOut]);
        check(&late, PLAIN, 400, &ApiError::put_timed_out(3, 0, 2).render());
        let options = PutOptions { sync: true, sync_timeout_ms: 100, ..SUMMARY };
        check(&late, options, 400, r#"{"success":3,"timeouts":2,"failed":0}"#);
        let refused = [PutPointError::WriteTimedOut, PutPointError::EmptyMetric];
        check(&outcome(3, &refused), SUMMARY, 400, r#"{"success":3,"failed":2}"#);
    }

    #[test]
    fn errors_stand_in_the_order_of_the_body() {
        let body = r#"[{"metric":"first","timestamp":1,"value":1,"tags":{"a":"b"}},null,{}]"#;
        let mut batch = PutBatch::default();
        batch.read(body, None, &mut UnlimitedMemory).unwrap();
        let mut outcome = PutOutcome::new(&batch);
        let stored_badly = batch.points().next().unwrap().offset;
        outcome.fail(stored_badly, PutPointError::UnknownName);
        let response = String::from_utf8(outcome.response(DETAILS, body).body).unwrap();
        let order =
            ["first", "null", "Metric name was empty"].map(|text| response.find(text).unwrap());
        assert!(order.is_sorted(), "{response}");
    }

    #[test]
    fn texts_of_later_failures() {
        let texts = [
            PutPointError::UnknownName,
            PutPointError::Throttled,
            PutPointError::Unexpected("why".into()),
            PutPointError::Storage("msg".into()),
            PutPointError::WriteTimedOut,
        ]
        .map(|error| error.to_string());
        assert_eq!(
            texts,
            [
                "Unknown metric",
                "Please throttle",
                "Unexpected exception: why",
                "Storage exception: msg",
                "Write timedout",
            ]
        );
    }

    #[test]
    fn options_are_flags_and_one_number() {
        let parse = |text: &str| PutOptions::parse(&QueryString::parse(text).unwrap());
        assert_eq!(parse(""), Ok(PLAIN));
        assert_eq!(parse("details=false"), Ok(DETAILS));
        let all = PutOptions { summary: true, details: true, sync: true, sync_timeout_ms: 7 };
        assert_eq!(parse("summary&details&sync&sync_timeout=7"), Ok(all));
        assert_eq!(parse("sync_timeout=-1"), Ok(PLAIN));
        assert_eq!(parse("sync_timeout=x").map_err(|e| e.status), Err(400));
    }
}
