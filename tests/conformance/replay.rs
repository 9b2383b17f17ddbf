//! Carries out a case against a daemon of its own: names, points and the question, all over HTTP.

use std::collections::BTreeMap;

use tokio::runtime::Runtime;
use tsd_cli::Node;

use super::{compare, json::Json};
use crate::{
    in_process,
    socket::{Answer, http},
};

/// Replays a case; the error says what differs. Without buckets keys are not salted.
pub(crate) fn replay(runtime: &Runtime, case: &Json, buckets: u32) -> Result<(), String> {
    let directory = in_process::directory();
    let buckets_text = buckets.to_string();
    let mut settings = vec![
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
            let answer = self.ask(method, uri, request.get("body"));
            if answer.status >= 300 {
                return Err(format!("{uri}: {answer:?}"));
            }
        }
        let request = self.case.get("request");
        let word = |key| request.and_then(|request| request.text_of(key));
        let (method, uri) = (word("method").unwrap_or("POST"), word("uri"));
        let body = self.case.get("query").filter(|body| **body != Json::Null);
        let answer = self.ask(method, uri.unwrap_or("/api/query"), body);
        compare::check(self.case, &answer)
    }

    /// Gives names their UIDs in the order of the recording, which decides the order of groups.
    fn assign(&self) -> Result<(), String> {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut note = |kind, name| {
            let names = names.entry(kind).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for uid in self.list("uids") {
            if let [Json::Text(kind), Json::Text(name)] = uid.items() {
                note(kind, name);
            }
        }
        for point in self.list("points") {
            note("metric", point.text_of("metric").ok_or("a point without metric")?);
            for (tagk, tagv) in point.get("tags").map(Json::fields).unwrap_or_default() {
                note("tagk", tagk);
                if let Json::Text(tagv) = tagv {
                    note("tagv", tagv);
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

    /// Writes points in the order of the recording, neighbours of one kind in one request.
    fn write(&self) -> Result<(), String> {
        let endpoint = |point: &Json| {
            let of_rollup = ["interval", "aggregator", "groupByAggregator"];
            let rolled = of_rollup.iter().any(|key| point.get(key).is_some());
            if rolled { "/api/rollup" } else { "/api/put" }
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

    fn ask(&self, method: &str, uri: &str, body: Option<&Json>) -> Answer {
        let body = body.map(Json::to_string);
        http(self.node.address(), method, uri, body.as_deref())
    }

    fn set_up(&self, uri: &str, body: &Json) -> Result<(), String> {
        match self.ask("POST", uri, Some(body)) {
            Answer { status: 200, .. } => Ok(()),
            answer => Err(format!("{uri}: {answer:?}")),
        }
    }
}
