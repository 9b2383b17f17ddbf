//! `/api/stats/query`: which queries run, and which ran.

use std::sync::Arc;

use super::query_response::{StatValue, write_double, write_stats};
use crate::json::{JsonList, JsonObject, write_json_string};

/// Who asked a query and what was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedClient<'a> {
    /// Address and port.
    pub remote: &'a str,
    /// Who it says it is.
    pub user: Option<&'a str>,
    /// Headers of the request, secrets masked.
    pub headers: &'a [(String, String)],
    /// The query as JSON.
    pub query: &'a str,
}

/// A running query as it is listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedRunning<'a> {
    /// Its number.
    pub id: u64,
    /// Who asked.
    pub asker: ListedClient<'a>,
    /// When, in epoch milliseconds.
    pub started_ms: i64,
    /// Milliseconds since.
    pub elapsed_ms: f64,
    /// What it does, in words.
    pub stage: String,
    /// Numbers about it.
    pub progress: Vec<(String, StatValue)>,
}

/// A query that is over, as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedCompleted<'a> {
    /// Its number.
    pub id: u64,
    /// Who asked.
    pub asker: ListedClient<'a>,
    /// Why it has no answer.
    pub failure: Option<&'a str>,
    /// Times the same client asked the same.
    pub executed: u64,
    /// Queries that ran when it was asked.
    pub running: usize,
    /// HTTP status of the answer and its name.
    pub status: Option<(u16, &'a str)>,
    /// When it was asked, in epoch milliseconds.
    pub started_ms: i64,
    /// When it ended.
    pub completed_ms: i64,
    /// Whether the whole answer was sent.
    pub sent: bool,
    /// Where its time went.
    pub stats: Vec<(String, StatValue)>,
}

/// Renders both lists. Fields that OpenTSDB lacks, such as `id` and `stage`, stand behind its own.
#[must_use]
pub fn render_query_list(
    running: &[ListedRunning<'_>],
    completed: &[ListedCompleted<'_>],
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut root = JsonObject::open(&mut out);
    let mut list = JsonList::open(root.key("completed"));
    for query in completed {
        write_completed(list.element(), query);
    }
    list.close();
    let mut list = JsonList::open(root.key("running"));
    for query in running {
        write_running(list.element(), query);
    }
    list.close();
    root.close();
    out
}

fn write_completed(out: &mut Vec<u8>, query: &ListedCompleted<'_>) {
    let mut object = JsonObject::open(out);
    write_query(object.key("query"), query.asker.query);
    object
        // A text, also where there is nothing to tell.
        .string("exception", query.failure.unwrap_or("null"))
        .literal("executed", query.executed);
    write_optional(object.key("user"), query.asker.user);
    write_headers(object.key("requestHeaders"), query.asker.headers);
    object.literal("numRunningQueries", query.running);
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
    object.string("remote", query.asker.remote).literal("id", query.id).close();
}

fn write_running(out: &mut Vec<u8>, query: &ListedRunning<'_>) {
    let mut object = JsonObject::open(out);
    write_double(object.key("elapsed"), query.elapsed_ms, false);
    write_headers(object.key("headers"), query.asker.headers);
    write_query(object.key("query"), query.asker.query);
    object.literal("queryStart", query.started_ms).string("remote", query.asker.remote);
    write_optional(object.key("user"), query.asker.user);
    object.literal("id", query.id).string("stage", &query.stage);
    write_stats(object.key("progress"), &query.progress);
    object.close();
}

fn write_query(out: &mut Vec<u8>, query: &str) {
    out.extend_from_slice(if query.is_empty() { b"null" } else { query.as_bytes() });
}

fn write_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => write_json_string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_headers(out: &mut Vec<u8>, headers: &[(String, String)]) {
    let mut object = JsonObject::open(out);
    for (name, value) in headers {
        object.string(name, value);
    }
    object.close();
}

/// A query with expressions for the lists: the whole of it, or its head if it is very long.
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
        let asker = ListedClient {
            remote: "127.0.0.1:1",
            user: None,
            headers: &headers,
            query: r#"{"start":"1h-ago"}"#,
        };
        let running = ListedRunning {
            id: 7,
            asker: asker.clone(),
            started_ms: 1_500_000_000_000,
            elapsed_ms: 12.5,
            stage: "scanning (1 of 2)".to_owned(),
            progress: vec![("rows".to_owned(), StatValue::Count(3))],
        };
        let completed = ListedCompleted {
            id: 6,
            asker,
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
