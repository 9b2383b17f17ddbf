//! Replays a case against a new daemon: UIDs, points and the query, all over HTTP.

use std::collections::BTreeMap;

use tokio::runtime::Runtime;
use tsd_cli::Node;
use tsd_testkit::{HttpResponse, http};

use super::{compare, json::Json};
use crate::in_process;

/// Replays a case; the error names the difference. Without buckets keys are not salted; `index_use`
/// is `tsd.query.series_index`.
pub(crate) fn replay(
    runtime: &Runtime,
    case: &Json,
    buckets: u32,
    index_use: &str,
) -> Result<(), String> {
    let directory = in_process::directory();
    let buckets_text = buckets.to_string();
    let mut settings = vec![
        ("tsd.query.series_index", index_use),
        ("tsd.storage.salt.width", if buckets == 0 { "0" } else { "1" }),
        ("tsd.storage.salt.buckets", if buckets == 0 { "1" } else { buckets_text.as_str() }),
    ];
    for (key, value) in case.get("config").map(Json::fields).unwrap_or_default() {
        if let Json::Text(value) = value {
            settings.push((key, value));
        }
    }
    let node = in_process::start(runtime, directory.path(), &settings)?;
    let result = Replay { node: &node, case }.run();
    in_process::stop(runtime, node);
    result
}

struct Replay<'a> {
    node: &'a Node,
    case: &'a Json,
}

impl Replay<'_> {
    fn run(&self) -> Result<(), String> {
        self.assign()?;
        self.write()?;
        for request in self.list("setup_requests") {
            let uri = request.text_of("uri").unwrap_or_default();
            let method = request.text_of("method").unwrap_or("GET");
            let response = self.request(method, uri, request.get("body"));
            if response.status >= 300 {
                return Err(format!("{uri}: {response:?}"));
            }
        }
        let request = self.case.get("request");
        let text_of = |key| request.and_then(|request| request.text_of(key));
        let (method, uri) = (text_of("method").unwrap_or("POST"), text_of("uri"));
        let body = self.case.get("query").filter(|body| **body != Json::Null);
        let response = self.request(method, uri.unwrap_or("/api/query"), body);
        compare::check(self.case, &response)
    }

    /// Assigns UIDs in the order of the recording, which decides the order of groups.
    fn assign(&self) -> Result<(), String> {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut add = |kind, name| {
            let names = names.entry(kind).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for uid in self.list("uids") {
            if let [Json::Text(kind), Json::Text(name)] = uid.items() {
                add(kind, name);
            }
        }
        for point in self.list("points") {
            add("metric", point.text_of("metric").ok_or("a point without metric")?);
            for (tagk, tagv) in point.get("tags").map(Json::fields).unwrap_or_default() {
                add("tagk", tagk);
                if let Json::Text(tagv) = tagv {
                    add("tagv", tagv);
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let text = |name: &&str| Json::Text((*name).to_owned());
        let body = names
            .iter()
            .map(|(kind, names)| ((*kind).to_owned(), names.iter().map(text).collect()))
            .map(|(kind, names)| (kind, Json::Array(names)))
            .collect();
        self.set_up("/api/uid/assign", &Json::Object(body))
    }

    /// Writes points in the order of the recording, successive ones of one endpoint in one request.
    fn write(&self) -> Result<(), String> {
        let endpoint = |point: &Json| {
            let rollup_keys = ["interval", "aggregator", "groupByAggregator"];
            let is_rollup = rollup_keys.iter().any(|key| point.get(key).is_some());
            if is_rollup { "/api/rollup" } else { "/api/put" }
        };
        for chunk in self.list("points").chunk_by(|a, b| endpoint(a) == endpoint(b)) {
            let Some(first) = chunk.first() else { continue };
            let uri = format!("{}?details", endpoint(first));
            self.set_up(&uri, &Json::Array(chunk.to_vec()))?;
        }
        Ok(())
    }

    fn list(&self, key: &str) -> &[Json] {
        self.case.get(key).map(Json::items).unwrap_or_default()
    }

    fn request(&self, method: &str, uri: &str, body: Option<&Json>) -> HttpResponse {
        let body = body.map(Json::to_string);
        http(self.node.address(), method, uri, body.as_deref())
    }

    fn set_up(&self, uri: &str, body: &Json) -> Result<(), String> {
        match self.request("POST", uri, Some(body)) {
            HttpResponse { status: 200, .. } => Ok(()),
            response => Err(format!("{uri}: {response:?}")),
        }
    }
}
