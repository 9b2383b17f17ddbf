//! Checks the page's views of a cluster of several daemons.

use std::{path::Path, thread};

use serde_json::{Value, json};
use tsd_testkit::{Daemon, http};

use crate::{
    Bench, data,
    hbase::{HBase, page_of},
};

/// Name of a node that would be markup.
const HOSTILE_NODE: &str = "<img/src=x/onerror=window.hostile=6>";

const NODES: &str = "document.querySelector('[aria-label=\"Nodes of the cluster\"]')";

/// Starts a node whose death the others wait for, so that the page's view of it stays.
fn start(hbase: &HBase, name: &str, data: &Path) -> Daemon {
    let node = hbase.daemon(&data.join(name.replace('/', "_")));
    node.args(&["--ack", "cluster"])
        .env("TSD_CLUSTER_NAME", name)
        .env("TSD_CLUSTER_SUSPECT_AFTER", "3600")
        .start()
}

/// Puts a point of each of 60 hosts, so that every node owns some of them.
fn put(node: &Daemon, metric: &str) {
    let point = |host| json!({ "metric": metric, "timestamp": data::now_secs(), "value": 1, "tags": { "host": format!("h{host}") } });
    let points: Value = (0..60).map(point).collect();
    let stored = http(node.address(), "POST", "/api/put", Some(&points.to_string()));
    assert_eq!(stored.status, 204, "{}", stored.body);
}

/// The shown table of nodes, one list of cells for each.
fn rows(bench: &Bench) -> Vec<Vec<String>> {
    let rows = bench.browser.script(&format!(
        "return [...{NODES}.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    ));
    let texts = |row: &Value| {
        let cells = row.as_array().expect("cells").iter();
        cells.map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect()
    };
    rows.as_array().expect("rows").iter().map(texts).collect()
}

/// Checks that a query on one node, which waits for the killed node, is listed and cancelled on the
/// page of another node.
fn cancel_on_another(bench: &Bench, page: &str, node: &Daemon) {
    let browser = &bench.browser;
    let asked = node.address();
    let client = thread::spawn(move || http(asked, "GET", "/api/query?start=1h-ago&m=sum:m", None));
    browser.open_anew(&format!("{page}#/queries"));
    let running = "document.querySelector('[aria-label=\"Running queries\"] tbody')";
    browser.wait(&format!("{running}?.innerText.includes('tsd2')"));
    browser.wait("document.querySelector('main').innerText.includes('tsd1: ')");
    let shown = browser.text(&format!("return {running}.innerText"));
    browser.click("[id^=cancel-]");
    let response = client.join().expect("a response");
    assert!(response.body.contains("cancelled by an operator"), "{}", response.body);
    browser.wait("!document.querySelector('[id^=cancel-]')");
    println!("page:   cancelled on another node: {}", shown.replace(['\n', '\t'], " "));
}

/// Two nodes share the slots.
fn slots(bench: &Bench) {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("a directory");
    let start = |name: &str| {
        let node = hbase.daemon(&directory.path().join(name));
        node.args(&["--ack", "cluster"]).env("TSD_CLUSTER_NAME", name).start()
    };
    let nodes = ["tsd0", "tsd1"].map(start);
    let browser = &bench.browser;
    browser.open_anew(&format!("{}#/storage", page_of(bench, &nodes[0])));
    let shares = format!(
        "[...{NODES}.querySelectorAll('tbody tr')].map(row => Number([...row.cells].pop().innerText.replaceAll(',', '')))"
    );
    browser.wait(&format!("{shares}.length === 2 && {shares}.every(slots => slots > 0)"));
    browser.wait(&format!("{shares}.reduce((a, b) => a + b) === 16384"));
    let line = browser.text("return document.getElementById('slots').innerText");
    assert!(line.ends_with("0 to be moved, 0 without an owner"), "{line}");
    println!("page:   {line}");
    // The page's own requests end before the daemon.
    browser.open("about:blank");
}

pub(crate) fn nodes(bench: &Bench) {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("a directory");
    let [first, second, third] =
        ["tsd0", "tsd1", "tsd2"].map(|name| start(&hbase, name, directory.path()));
    let address = page_of(bench, &first);
    let browser = &bench.browser;
    browser.open_anew(&format!("{address}#/storage"));
    let shares = format!(
        "[...{NODES}.querySelectorAll('tbody tr')].map(row => Number([...row.cells].pop().innerText.replaceAll(',', '')))"
    );
    browser.wait(&format!("{shares}.length === 3 && {shares}.every(slots => slots > 0)"));
    browser.wait("document.getElementById('slots').innerText.includes(' 0 to be moved')");
    put(&first, "m");
    browser.open_anew(&format!("{address}#/storage"));
    browser.wait(&format!("{NODES}.querySelectorAll('tbody tr').length === 3"));
    browser.wait(&format!(
        "[...{NODES}.querySelectorAll('tbody tr')].every(row => row.cells[1].innerText === 'serving')"
    ));
    let status = http(first.address(), "GET", "/api/cluster", None);
    let status: Value = serde_json::from_str(&status.body).expect("JSON");
    for (at, row) in rows(bench).iter().enumerate() {
        let name = format!("tsd{at}{}", if at == 0 { " (this)" } else { "" });
        let address = status["nodes"][at]["address"].as_str().expect("an address");
        assert_eq!((row[0].as_str(), row[2].as_str()), (name.as_str(), address));
        let (heartbeat, log, held) = (&row[3], &row[4], &row[5]);
        assert!(heartbeat.ends_with("ms") || heartbeat.ends_with(" s"), "{row:?}");
        assert!(log.ends_with('B') && log != "0 B", "{row:?}");
        assert!(held.parse::<u32>().is_ok_and(|held| held > 0), "{row:?}");
    }

    second.kill();
    browser.wait(&format!(
        "{NODES}.querySelectorAll('tbody tr')[1].cells[1].innerText.includes('connect')"
    ));
    browser.wait(&format!("{NODES}.querySelectorAll('tbody .ERROR').length === 1"));
    let killed = rows(bench).swap_remove(1);
    assert!(killed[0] == "tsd1" && killed[5] == "–", "{killed:?}");
    bench.pictures("cluster", "[aria-label='Nodes of the cluster']");
    println!("page:   a killed node: {}", killed.join(" | "));

    cancel_on_another(bench, &address, &third);

    browser.open_anew(&format!("{address}#/storage"));
    let hostile = start(&hbase, HOSTILE_NODE, directory.path());
    browser.wait(&format!("{NODES}.querySelectorAll('tbody tr').length === 4"));
    assert!(rows(bench).iter().any(|row| row[0] == HOSTILE_NODE), "{:?}", rows(bench));
    assert_eq!(browser.text("return String(window.hostile)"), "undefined");
    assert_eq!(browser.script("return document.querySelectorAll('main img').length"), 0);
    println!("page:   shown as text: {HOSTILE_NODE}");
    // The page's own requests end before the daemon.
    browser.open("about:blank");
    drop(hostile);

    slots(bench);
}
