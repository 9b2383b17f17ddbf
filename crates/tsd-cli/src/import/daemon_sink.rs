//! Sends imported points to a running daemon as `/api/put` requests. Rollups and histograms of a spool go to their
//! own endpoints.
//!
//! The sink sends one request at a time, so that points of one cell are stored in the order of their lines. It
//! repeats a request that got no response, which is harmless because points are idempotent.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{
    importer::{PointSink, Refusal, SinkFailure},
    json_line::{JsonKind, JsonLine},
    line::{ImportLine, LineError},
};
use crate::daemon_client::{ClientError, DaemonClient, DaemonResponse};

/// Points per request.
const BATCH_POINTS: usize = 5_000;
/// Maximum bytes per request, for points with long names. Much less than a daemon's default limit.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of a point in a request in addition to its names and value.
const POINT_BYTES: usize = 64;
/// How long the sink retries a request while the daemon is busy or unreachable.
const RETRY_FOR: Duration = Duration::from_mins(1);
/// First pause before a retry; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Collects points into requests.
pub(super) struct DaemonSink {
    client: DaemonClient,
    /// The next request of each of [`JsonKind::ALL`].
    batches: [PointBatch; JsonKind::ALL.len()],
    /// Points per request; reduced after a daemon rejects a request as too large.
    batch_points: usize,
    stored: u64,
    failures: Vec<SinkFailure>,
}

/// The points of a request, with their lines.
#[derive(Default)]
struct PointBatch {
    points: Vec<(u64, Value)>,
    bytes: usize,
}

impl DaemonSink {
    pub(super) fn new(client: DaemonClient) -> Self {
        Self {
            client,
            batches: Default::default(),
            batch_points: BATCH_POINTS,
            stored: 0,
            failures: Vec::new(),
        }
    }

    /// Sends all points. Stops at a failure of the store.
    async fn send_all(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        for (kind, batch) in JsonKind::ALL.into_iter().zip(batches) {
            if !self.send_points(kind, batch.points).await {
                return;
            }
        }
    }

    /// Sends points of a kind. Returns false after a failure of the store.
    async fn send_points(&mut self, kind: JsonKind, mut rest: Vec<(u64, Value)>) -> bool {
        while !rest.is_empty() {
            let size = rest.len().min(self.batch_points);
            let later = rest.split_off(size);
            match self.send_batch(kind, &rest).await {
                Ok(()) => rest = later,
                Err(BatchError::TooLarge(_)) if size > 1 => {
                    self.batch_points = size / 2;
                    rest.extend(later);
                }
                Err(BatchError::TooLarge(reason) | BatchError::Failed(reason)) => {
                    let line = rest.first().map_or(0, |(line, _)| *line);
                    self.failures.push(SinkFailure { line, refusal: Refusal::Daemon(reason) });
                    return false;
                }
            }
        }
        true
    }

    /// Adds a point to the next request of its kind.
    async fn add(&mut self, kind: JsonKind, line: u32, point: Value, bytes: usize) {
        let Some(batch) = self.batches.get_mut(kind as usize) else { return };
        batch.points.push((u64::from(line), point));
        batch.bytes += bytes;
        if batch.points.len() >= self.batch_points || batch.bytes >= BATCH_BYTES {
            self.send_all().await;
        }
    }

    /// Sends points in one request, and retries while the daemon is busy.
    async fn send_batch(
        &mut self,
        kind: JsonKind,
        batch: &[(u64, Value)],
    ) -> Result<(), BatchError> {
        let points: Vec<&Value> = batch.iter().map(|(_, point)| point).collect();
        let body = json!(points).to_string();
        let deadline = Instant::now() + RETRY_FOR;
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = match self.client.post(kind.path(), body.clone()).await {
                Ok(response) => match self.note_response(batch, &response) {
                    Err(BatchError::Failed(reason)) if response.status == 503 => reason,
                    noted => return noted,
                },
                Err(error @ (ClientError::Request(_) | ClientError::Tls { .. })) => {
                    return Err(BatchError::Failed(format!("{:#}", anyhow::Error::new(error))));
                }
                Err(error) => format!("{:#}", anyhow::Error::new(error)),
            };
            if Instant::now() + pause > deadline {
                return Err(BatchError::Failed(reason));
            }
            tracing::warn!("waiting for {}: {reason}", self.client.authority());
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Counts the results of a request's points.
    fn note_response(
        &mut self,
        batch: &[(u64, Value)],
        response: &DaemonResponse,
    ) -> Result<(), BatchError> {
        let body = response.json();
        let success = body.get("success").and_then(Value::as_u64);
        match response.status.as_u16() {
            204 => self.stored += batch.len() as u64,
            200 | 400 if success.is_some() => {
                self.stored += success.unwrap_or_default();
                let errors = body.get("errors").and_then(Value::as_array);
                let mut points = batch.iter();
                for error in errors.into_iter().flatten() {
                    // Errors are in the order of their points, with metric, time and tags as sent.
                    let failed = error.get("datapoint").unwrap_or(&Value::Null);
                    let found = points.find(|(_, point)| {
                        ["metric", "timestamp", "tags"]
                            .iter()
                            .all(|name| point[name] == failed[name])
                    });
                    let first = batch.first().map_or(0, |(line, _)| *line);
                    let line = found.map_or(first, |(line, _)| *line);
                    let text = error.get("error").and_then(Value::as_str).unwrap_or("refused");
                    let refusal = Refusal::Point(text.to_owned());
                    self.failures.push(SinkFailure { line, refusal });
                }
            }
            413 => return Err(BatchError::TooLarge(response.error_text())),
            503 => {
                // With `details` each point has its own reason.
                let text = body.pointer("/errors/0/error").and_then(Value::as_str);
                let reason =
                    text.map_or_else(|| response.error_text(), |text| format!("503 {text}"));
                return Err(BatchError::Failed(reason));
            }
            _ => return Err(BatchError::Failed(response.error_text())),
        }
        Ok(())
    }
}

/// Why a request failed.
enum BatchError {
    /// The request is larger than the daemon's limit.
    TooLarge(String),
    /// The daemon failed, or is unreachable.
    Failed(String),
}

impl PointSink for DaemonSink {
    async fn put(
        &mut self,
        point: &ImportLine<'_>,
        number: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        *is_new = true;
        let text = |bytes| std::str::from_utf8(bytes).map_err(LineError::NotUtf8);
        let mut tags = Map::new();
        for (tagk, tagv) in &point.tags()? {
            tags.insert(text(tagk)?.to_owned(), text(tagv)?.into());
        }
        let json = json!({
            "metric": text(point.metric)?,
            "timestamp": point.timestamp,
            // As text, because JSON has no numbers such as `+1`.
            "value": text(point.value_text)?,
            "tags": tags,
        });
        let bytes =
            POINT_BYTES + point.metric.len() + point.value_text.len() + point.tags_raw.len();
        self.add(JsonKind::Point, number, json, bytes).await;
        Ok(())
    }

    async fn put_json(
        &mut self,
        json: JsonLine,
        number: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        *is_new = true;
        let bytes = json.line_bytes;
        self.add(json.kind, number, Value::Object(json.object), bytes).await;
        Ok(())
    }

    async fn send(&mut self) {
        self.send_all().await;
    }

    async fn drain(&mut self) {
        self.send_all().await;
    }

    fn take_failures(&mut self) -> Vec<SinkFailure> {
        std::mem::take(&mut self.failures)
    }

    fn stored(&self) -> u64 {
        self.stored
    }
}
