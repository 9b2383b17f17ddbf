//! The answer to a put: which status, which body.

use super::{point_fields::PointFields, put_batch::PutBatch, put_error::PutPointError};
use crate::{
    ApiError, QueryString,
    json::{JsonList, JsonObject, JsonReader},
};

/// What a put asked to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Counters.
    pub summary: bool,
    /// Counters and the refused points.
    pub details: bool,
    /// Answer only when storage has the points.
    pub sync: bool,
    /// With `sync`: answer after at most this many milliseconds; 0 waits for ever.
    pub sync_timeout_ms: u64,
}

impl PutOptions {
    /// Reads the parameters of the URI.
    pub fn parse(query: &QueryString) -> Result<Self, ApiError> {
        let sync_timeout_ms = match query.get("sync_timeout") {
            None => 0,
            Some(text) => text
                .parse()
                .map_err(|_| ApiError::new(400, "Unable to parse 'sync_timeout' as a number"))?,
        };
        Ok(Self {
            summary: query.has("summary"),
            details: query.has("details"),
            sync: query.has("sync"),
            sync_timeout_ms,
        })
    }
}

/// How a put went, while it goes.
#[derive(Debug, Default)]
pub struct PutOutcome {
    succeeded: u64,
    failed: u64,
    timed_out: u64,
    refused_any: bool,
    errors: Vec<(u32, PutPointError)>,
}

/// A status and a body; no body with 204.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReply {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

impl PutOutcome {
    /// Starts with the points that `batch` refused.
    #[must_use]
    pub fn new(batch: &PutBatch) -> Self {
        let mut outcome = Self::default();
        for point in batch.refused() {
            outcome.fail(point.offset, point.error.clone());
        }
        outcome
    }

    /// Counts points that were stored (or queued, where the client does not wait).
    pub fn succeed(&mut self, points: u64) {
        self.succeeded += points;
    }

    /// Counts a point that failed. `offset` is where it stands in the body.
    pub fn fail(&mut self, offset: u32, error: PutPointError) {
        if error == PutPointError::WriteTimedOut {
            self.timed_out += 1;
        } else {
            self.failed += 1;
        }
        self.refused_any |= error.is_refusal();
        self.errors.push((offset, error));
    }

    /// The points that failed so far.
    #[must_use]
    pub fn errors(&self) -> &[(u32, PutPointError)] {
        &self.errors
    }

    /// The answer. `body` is the one the offsets point into.
    #[must_use]
    pub fn reply(&self, options: PutOptions, body: &str) -> PutReply {
        let detailed = options.summary || options.details;
        if self.failed == 0 && self.timed_out == 0 && !detailed {
            return PutReply { status: 204, body: Vec::new() };
        }
        if !detailed {
            let error = if self.timed_out > 0 {
                ApiError::put_timed_out(self.succeeded, self.failed, self.timed_out)
            } else {
                ApiError::points_had_errors()
            };
            return PutReply { status: error.status, body: error.render().into_bytes() };
        }
        let status = if self.refused_any || self.timed_out > 0 { 400 } else { 200 };
        PutReply { status, body: self.render(options, body) }
    }

    fn render(&self, options: PutOptions, body: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = JsonObject::open(&mut out);
        object.literal("success", self.succeeded);
        if options.sync_timeout_ms > 0 {
            object.literal("timeouts", self.timed_out);
        }
        object.literal("failed", self.failed);
        if options.details {
            let mut errors: Vec<&(u32, PutPointError)> = self.errors.iter().collect();
            errors.sort_by_key(|(offset, _)| *offset);
            let mut list = JsonList::open(object.key("errors"));
            for (offset, error) in errors {
                let mut object = JsonObject::open(list.element());
                echo_point(body, *offset, object.key("datapoint"));
                object.string("error", &error.to_string());
                object.close();
            }
            list.close();
        }
        object.close();
        out
    }
}

/// Writes the point at `offset` of `body` as it was received.
fn echo_point(body: &str, offset: u32, out: &mut Vec<u8>) {
    let mut reader = JsonReader::new_at(body, offset as usize);
    let mut fields = PointFields::default();
    match fields.read(&mut reader) {
        Ok(()) => fields.echo(out),
        Err(_) => out.extend_from_slice(b"null"),
    }
}
