//! Renders `/api/stats/query`: running and completed queries.

use std::sync::Arc;

use super::query_failure::QueryFailureCause;
use super::query_response::{StatValue, write_double, write_stats};
use crate::json::JsonObject;

/// The client of a query, and the query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedClient<'a> {
    /// Address and port.
    pub remote: &'a str,
    /// User name, if known.
    pub user: Option<&'a str>,
    /// Headers of the request, secrets masked.
    pub headers: &'a [(String, String)],
    /// The query as JSON.
    pub query: &'a str,
}

/// A running query of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedRunning<'a> {
    /// Id of the query.
    pub id: u64,
    /// Client and query.
    pub client: ListedClient<'a>,
    /// Start, in epoch milliseconds.
    pub started_ms: i64,
    /// Elapsed milliseconds.
    pub elapsed_ms: f64,
    /// Description of the current stage.
    pub stage: String,
    /// Progress counters.
    pub progress: Vec<(String, StatValue)>,
}

/// How a query ended, in OpenTSDB's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedOutcome {
    /// HTTP status of the response; `None` if no complete response was sent.
    pub status: Option<u16>,
    /// Error message, if the query failed.
    pub message: Option<String>,
}

impl ListedOutcome {
    /// Outcome of a query whose complete response was sent.
    #[must_use]
    pub const fn sent() -> Self {
        Self { status: Some(200), message: None }
    }

    /// Outcome of a failed query.
    #[must_use]
    pub fn failed(cause: &QueryFailureCause) -> Self {
        Self { status: Some(cause.status()), message: Some(cause.message()) }
    }

    /// Outcome of a query whose client disconnected before the response.
    #[must_use]
    pub fn abandoned() -> Self {
        Self { status: None, message: Some("the query was cancelled".to_owned()) }
    }
}

/// A completed query of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedCompleted<'a> {
    /// Id of the query.
    pub id: u64,
    /// Client and query.
    pub client: ListedClient<'a>,
    /// Error text of a failed query.
    pub failure: Option<String>,
    /// How often the same client sent the same query.
    pub executed: u64,
    /// Number of running queries at its start.
    pub running: usize,
    /// HTTP status of the response and its reason phrase.
    pub status: Option<(u16, &'a str)>,
    /// Start, in epoch milliseconds.
    pub started_ms: i64,
    /// End, in epoch milliseconds.
    pub completed_ms: i64,
    /// True if the complete response was sent.
    pub sent: bool,
    /// Statistics of the query.
    pub stats: Vec<(String, StatValue)>,
}

/// Renders both lists. Fields that OpenTSDB lacks, such as `id` and `stage`, come last.
#[must_use]
pub fn render_query_list(
    running: &[ListedRunning<'_>],
    completed: &[ListedCompleted<'_>],
) -> Vec<u8> {
    let mut out = Vec::new();
    JsonObject::open(&mut out)
        .list("completed", completed, write_completed)
        .list("running", running, write_running)
        .close();
    out
}

/// Renders the running queries that fit into about `max_bytes`, and the number of the others.
#[must_use]
pub fn render_running_list(running: &[ListedRunning<'_>], max_bytes: usize) -> Vec<u8> {
    let (mut list, mut omitted) = (Vec::new(), 0);
    for query in running {
        let before = list.len();
        list.extend_from_slice(if before == 0 { b"" } else { b"," });
        write_running(&mut list, query);
        if list.len() > max_bytes {
            list.truncate(before);
            omitted += 1;
        }
    }
    let mut out = Vec::with_capacity(list.len() + 40);
    let mut object = JsonObject::open(&mut out);
    let into = object.key("running");
    into.push(b'[');
    into.append(&mut list);
    into.push(b']');
    object.literal("omitted", omitted).close();
    out
}

fn write_completed(out: &mut Vec<u8>, query: &ListedCompleted<'_>) {
    let mut object = JsonObject::open(out);
    write_query(object.key("query"), query.client.query);
    object
        .string("exception", query.failure.as_deref().unwrap_or("null"))
        .literal("executed", query.executed)
        .optional("user", query.client.user)
        .object("requestHeaders", query.client.headers.iter().map(|(name, value)| (name, value)))
        .literal("numRunningQueries", query.running);
    match query.status {
        None => drop(object.literal("httpResponse", "null")),
        Some((code, reason)) => JsonObject::open(object.key("httpResponse"))
            .literal("code", code)
            .string("reasonPhrase", reason)
            .close(),
    }
    object
        .literal("queryStartTimestamp", query.started_ms)
        .literal("queryCompletedTimestamp", query.completed_ms)
        .literal("sentToClient", query.sent);
    write_stats(object.key("stats"), &query.stats);
    object.string("remote", query.client.remote).literal("id", query.id).close();
}

fn write_running(out: &mut Vec<u8>, query: &ListedRunning<'_>) {
    let mut object = JsonObject::open(out);
    write_double(object.key("elapsed"), query.elapsed_ms, false);
    object.object("headers", query.client.headers.iter().map(|(name, value)| (name, value)));
    write_query(object.key("query"), query.client.query);
    object
        .literal("queryStart", query.started_ms)
        .string("remote", query.client.remote)
        .optional("user", query.client.user)
        .literal("id", query.id)
        .string("stage", &query.stage);
    write_stats(object.key("progress"), &query.progress);
    object.close();
}

fn write_query(out: &mut Vec<u8>, query: &str) {
    out.extend_from_slice(if query.is_empty() { b"null" } else { query.as_bytes() });
}

/// Renders a query with expressions for the list, truncated if it is very long.
#[must_use]
pub fn listed_exp_query(rendered: &Arc<str>) -> Arc<str> {
    const MAX: usize = 32 << 10;
    if rendered.len() <= MAX {
        return Arc::clone(rendered);
    }
    let mut out = Vec::new();
    let head = rendered.get(..rendered.floor_char_boundary(MAX)).unwrap_or_default();
    JsonObject::open(&mut out).literal("bytes", rendered.len()).string("beginsWith", head).close();
    String::from_utf8(out).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn lists_have_opentsdbs_fields_first() {
        let headers = [("Host".to_owned(), "tsd:4242".to_owned())];
        let client = ListedClient {
            remote: "127.0.0.1:1",
            user: None,
            headers: &headers,
            query: r#"{"start":"1h-ago"}"#,
        };
        let running = ListedRunning {
            id: 7,
            client: client.clone(),
            started_ms: 1_500_000_000_000,
            elapsed_ms: 12.5,
            stage: "scanning (1 of 2)".to_owned(),
            progress: vec![("rows".to_owned(), StatValue::Count(3))],
        };
        let completed = ListedCompleted {
            id: 6,
            client,
            failure: None,
            executed: 2,
            running: 1,
            status: Some((200, "OK")),
            started_ms: 1_500_000_000_000,
            completed_ms: 1_500_000_000_001,
            sent: true,
            stats: vec![("totalTime".to_owned(), StatValue::Millis(1.0))],
        };
        let text = String::from_utf8(render_query_list(&[running], &[completed])).unwrap();
        insta::assert_snapshot!(text);
        assert_eq!(render_query_list(&[], &[]), br#"{"completed":[],"running":[]}"#);
    }

    #[test]
    fn long_queries_are_cut_but_stay_json() {
        let long: Arc<str> = format!("\"{}\"", "é".repeat(100_000)).into();
        let read: serde_json::Value = serde_json::from_str(&listed_exp_query(&long)).unwrap();
        assert_eq!(read.get("bytes").unwrap(), long.len());
    }
}
