//! Tests trees over HTTP: requests and their errors, rules on stored series, and trees that grow
//! with new points. Statuses and texts are OpenTSDB 2.4.1's.

mod building;
mod hbase;
mod requests;

use std::net::SocketAddr;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::Node;
use tsd_testkit::{http, wait_for};

use crate::in_process;

/// A daemon in this process.
struct TreeDaemon {
    runtime: Runtime,
    node: Option<Node>,
    directory: TempDir,
    settings: Vec<(&'static str, &'static str)>,
}

impl TreeDaemon {
    fn start(settings: &[(&'static str, &'static str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let directory = in_process::directory();
        let settings = settings.to_vec();
        let node = in_process::start(&runtime, directory.path(), &settings).expect("a daemon");
        Self { runtime, node: Some(node), directory, settings }
    }

    /// A daemon that places new series in trees.
    fn with_trees(settings: &[(&'static str, &'static str)]) -> Self {
        let mut all = vec![
            ("tsd.core.auto_create_metrics", "true"),
            ("tsd.core.meta.enable_tsuid_tracking", "true"),
            ("tsd.core.meta.enable_realtime_ts", "true"),
            ("tsd.core.tree.enable_processing", "true"),
        ];
        all.extend(settings);
        Self::start(&all)
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("a running daemon")
    }

    fn address(&self) -> SocketAddr {
        self.node().address()
    }

    /// Restarts it on the same data.
    fn restart(&mut self) {
        in_process::stop(&self.runtime, self.node.take().expect("a running daemon"));
        let node = in_process::start(&self.runtime, self.directory.path(), &self.settings);
        self.node = Some(node.expect("a daemon"));
    }

    /// Status and body of a request.
    fn request(&self, method: &str, uri: &str, body: Option<&str>) -> (u16, String) {
        let response = http(self.address(), method, uri, body);
        (response.status, response.body)
    }

    fn get(&self, uri: &str) -> Value {
        let (status, body) = self.request("GET", uri, None);
        assert_eq!(status, 200, "{uri}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// Posts a body that must be accepted.
    fn post(&self, uri: &str, body: &str) {
        let (status, text) = self.request("POST", uri, Some(body));
        assert!(matches!(status, 200 | 204), "{uri} {body}: {status} {text}");
    }

    /// Sends a request that fails; returns its message.
    #[track_caller]
    fn refused(&self, method: &str, uri: &str, body: Option<&str>, status: u16) -> String {
        let (found, text) = self.request(method, uri, body);
        assert_eq!(found, status, "{method} {uri} {body:?}: {text}");
        let error: Value = serde_json::from_str(&text).expect("an error object");
        assert_eq!(error["error"]["code"], status);
        error["error"]["message"].as_str().expect("a message").to_owned()
    }

    /// Creates an enabled tree with these rules, whose JSON lacks tree and level.
    fn tree(&self, name: &str, rules: &[&str]) -> u64 {
        let created = self.request("POST", "/api/tree", Some(&format!(r#"{{"name":"{name}"}}"#)));
        let created: Value = serde_json::from_str(&created.1).expect("JSON");
        let id = created["treeId"].as_u64().expect("a number");
        for (level, rule) in rules.iter().enumerate() {
            let body = format!(r#"{{"treeId":{id},"level":{level},"order":0,{rule}}}"#);
            self.post("/api/tree/rule", &body);
        }
        let enabled = format!(r#"{{"treeId":{id},"enabled":true,"storeFailures":true}}"#);
        self.post("/api/tree", &enabled);
        id
    }

    fn put(&self, metric: &str, tags: &[(&str, &str)]) {
        let tags: serde_json::Map<String, Value> =
            tags.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
        let point = serde_json::json!({
            "metric": metric, "timestamp": 1_356_998_400, "value": 1, "tags": tags
        });
        self.post("/api/put", &point.to_string());
    }

    /// Waits for the branch with this path below the root.
    fn branch(&self, tree: u64, path: &[&str]) -> Value {
        let mut uri = format!("/api/tree/branch?treeid={tree}");
        for name in path {
            let next = self.eventually(&uri, |branch| {
                let children = branch["branches"].as_array()?;
                let child = children.iter().find(|child| child["displayName"] == *name)?;
                Some(child["branchId"].as_str().expect("an id").to_owned())
            });
            uri = format!("/api/tree/branch?branch={next}");
        }
        self.eventually(&uri, |branch| Some(branch.clone()))
    }

    /// The first response to a GET that `accept` accepts.
    #[track_caller]
    fn eventually<T>(&self, uri: &str, accept: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(|| {
            let (status, body) = self.request("GET", uri, None);
            (status == 200)
                .then(|| serde_json::from_str(&body).ok())
                .flatten()
                .and_then(|v| accept(&v))
        })
        .unwrap_or_else(|| panic!("{uri}: {:?}", self.request("GET", uri, None)))
    }

    /// Waits for a leaf of this name in a branch.
    #[track_caller]
    fn leaf(&self, tree: u64, path: &[&str], name: &str) -> Value {
        let id = self.branch(tree, path)["branchId"].as_str().expect("an id").to_owned();
        self.eventually(&format!("/api/tree/branch?branch={id}"), |branch| {
            let leaves = branch["leaves"].as_array()?;
            leaves.iter().find(|leaf| leaf["displayName"] == name).cloned()
        })
    }
}

impl Drop for TreeDaemon {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            in_process::stop(&self.runtime, node);
        }
    }
}
