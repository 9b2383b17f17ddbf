//! Checks the browser's reports of the run: no error of a script, no violation of the page's policy, and no request to another host.

use serde_json::Value;

use crate::Bench;

/// Responses with an error status that the checks provoke: the console reports them, too.
const EXPECTED: &[&str] =
    &["/api/query", "/api/stats/query", "/logs", "/api/config/sources", "/api/config/keys"];

pub(crate) fn check(bench: &Bench) {
    let mut wrong = Vec::new();
    let entries = bench.browser.log("browser");
    let mut expected = 0;
    for entry in &entries {
        let text = entry["message"].as_str().unwrap_or_default();
        let is_response =
            entry["source"] == "network" && EXPECTED.iter().any(|path| text.contains(path));
        if is_response {
            expected += 1;
        } else if entry["level"] == "SEVERE" || entry["level"] == "WARNING" {
            wrong.push(entry.to_string());
        }
    }
    let mut daemons = bench.others.borrow().clone();
    daemons.push(format!("http://{}/", bench.daemon.address()));
    let mut requests = 0;
    for entry in bench.browser.log("performance") {
        let message: Value =
            serde_json::from_str(entry["message"].as_str().unwrap_or_default()).unwrap_or_default();
        if message["message"]["method"] != "Network.requestWillBeSent" {
            continue;
        }
        let request = &message["message"]["params"];
        // The first tab belongs to the browser.
        if request["documentURL"].as_str().is_some_and(|page| page.starts_with("chrome://")) {
            continue;
        }
        let url = request["request"]["url"].as_str().unwrap_or_default();
        requests += 1;
        let is_local = ["data:", "blob:", "about:"].iter().any(|scheme| url.starts_with(scheme));
        let is_own = daemons.iter().any(|own| url.starts_with(own));
        if !is_own && !is_local {
            wrong.push(format!("a request to {url}"));
        }
    }
    println!(
        "page: {requests} requests, all to the daemons; {} entries in the console, {expected} of them expected errors of the API",
        entries.len()
    );
    assert!(requests > 0, "the requests were recorded");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
