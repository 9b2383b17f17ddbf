//! Checks drawing, colours and sizes, and the views of the daemon's state.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
};

use serde_json::{Value, json};
use tsd_testkit::{connect, http};

use crate::{
    Bench, data,
    hbase::{HBase, page_of},
};

const DASHBOARD: &str = "start=6h-ago&tz=UTC&m=avg:2m-avg:sys.cpu.user{host=*}&ylabel=CPU,+percent";

/// Colour of a corner of the chart.
const CHART_PIXEL: &str = "const c = document.querySelector('.chart canvas'); return [...c.getContext('2d').getImageData(2, 2, 1, 1).data].join()";

pub(crate) fn drawn(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(DASHBOARD);
    println!("page:   first contents painted after {:.0} ms", bench.first_paint_ms());
    browser.hover_chart(0.62, 0.4);
    browser.wait("!document.querySelector('.tip').hidden");
    bench.picture("graph.png");
    bench.open_graph("start=6h-ago&tz=UTC&m=sum:5m-avg:rate:http.requests{host=*}&o=style+stack&m=avg:5m-avg:sys.mem.used&o=axis+x1y2&ylabel=requests+per+second&y2label=memory,+percent&y2range=[0:100]");
    let stacked = browser.text("return document.querySelectorAll('.legend tbody tr').length");
    bench.picture("stacked.png");
    println!("page:   {stacked} series, stacked on the left axis, one on the right");
}

pub(crate) fn phone(bench: &Bench) {
    let browser = &bench.browser;
    bench.phone();
    for view in [DASHBOARD, "/overview", "/queries", "/storage", "/cardinality", "/config", "/log"]
    {
        bench.open(view);
        browser.wait("document.querySelector('main .panel')");
        let widths = browser.script("return [document.documentElement.scrollWidth, innerWidth]");
        assert!(
            widths[0].as_f64() <= widths[1].as_f64(),
            "{view} is wider than the screen: {widths}"
        );
    }
    bench.open_graph(DASHBOARD);
    bench.picture("graph-phone.png");
    bench.desktop();
    println!("page:   390 × 844: no view is wider than the screen");
}

pub(crate) fn colours(bench: &Bench) {
    let browser = &bench.browser;
    let background = || browser.text("return getComputedStyle(document.body).backgroundColor");
    let pixel = || browser.text(CHART_PIXEL);
    bench.open_graph(DASHBOARD);
    let light = (background(), pixel());
    bench.colours_of_system("dark");
    browser.wait(&format!("getComputedStyle(document.body).backgroundColor !== {:?}", light.0));
    let canvas = "document.querySelector('.chart canvas').getContext('2d').getImageData(2, 2, 1, 1).data[0] < 100";
    browser.wait(canvas);
    let dark = (background(), pixel());
    bench.picture("graph-dark.png");
    // From the system to light.
    browser.click("#theme");
    browser.wait(&format!("getComputedStyle(document.body).backgroundColor === {:?}", light.0));
    // The choice is kept.
    bench.open_graph(DASHBOARD);
    assert_eq!(background(), light.0);
    browser.click("#theme");
    browser.wait(&format!("getComputedStyle(document.body).backgroundColor === {:?}", dark.0));
    browser.click("#theme");
    bench.colours_of_system("light");
    browser.wait(&format!("getComputedStyle(document.body).backgroundColor === {:?}", light.0));
    println!("page:   light {light:?}, dark {dark:?}");
}

pub(crate) fn overview(bench: &Bench) {
    let browser = &bench.browser;
    let address = bench.daemon.address();
    bench.open("/overview");
    // The rate is known after the second sample.
    browser.wait("document.querySelector('.tile .v') && document.querySelector('.tile .v').textContent !== '…'");
    let mut stream = connect(address);
    let now = data::now_secs();
    for ts in now - 2_000..now {
        writeln!(stream, "put sys.load {ts} 1 host=a").expect("send");
    }
    browser.wait("Number.parseFloat(document.querySelector('.tile .v').textContent) > 0");
    let tiles = browser.text("return [...document.querySelectorAll('.tile')].map(e => e.innerText.replaceAll('\\n', ' ')).join('; ')");
    let queues = browser
        .script("return document.querySelectorAll('[aria-label=\"Queues and memory\"] tr').length");
    assert!(queues.as_u64() > Some(5), "{queues} queues");
    browser.wait("Number(document.querySelector('.chart').dataset.points) > 6");
    let colour = || browser.text(CHART_PIXEL);
    let light = colour();
    bench.colours_of_system("dark");
    browser.painted();
    assert_ne!(colour(), light, "the chart follows the colours before its next points");
    bench.colours_of_system("light");
    bench.pictures("overview", "body");
    println!("page:   {tiles}; {queues} queues");
}

/// Sends a long query, whose response the caller reads.
fn send_long_query(address: SocketAddr) -> TcpStream {
    // Each sub query has its own interval, since equal sub queries are merged.
    let sub = |seconds: u32| {
        json!({
            "aggregator": "p99",
            "metric": "many",
            "downsample": format!("{seconds}s-avg"),
            "filters": [{ "type": "wildcard", "tagk": "series", "filter": "*", "groupBy": true }],
        })
    };
    let subs: Vec<Value> = (1..=300).map(sub).collect();
    let body = json!({ "start": "4h-ago", "queries": subs }).to_string();
    let mut stream = connect(address);
    write!(
        stream,
        "POST /api/query HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("send");
    stream
}

pub(crate) fn queries(bench: &Bench) {
    let browser = &bench.browser;
    let address = bench.daemon.address();
    bench.open("/queries");
    browser.wait("document.querySelector('[aria-label=\"Completed queries\"]')");
    let client = thread::spawn(move || {
        let mut response = Vec::new();
        send_long_query(address).read_to_end(&mut response).expect("a response");
        String::from_utf8_lossy(&response).into_owned()
    });
    browser.click("[id^=cancel-]");
    let response = client.join().expect("a response");
    let head = response.get(..500).unwrap_or(&response);
    assert!(response.contains("cancelled by an operator"), "{head}");
    browser.wait("!document.querySelector('[id^=cancel-]')");
    let pictured = send_long_query(address);
    browser.wait("document.querySelector('[id^=cancel-]')");
    let running = browser
        .text("return document.querySelector('[aria-label=\"Running queries\"] tbody').innerText");
    bench.pictures("queries", "body");
    drop(pictured);
    println!("page:   one was cancelled; another: {}", running.replace('\n', " "));
}

pub(crate) fn storage(bench: &Bench) {
    bench.open("/storage");
    bench.browser.wait("document.querySelector('#health-state') && document.querySelector('[aria-label=\"Calls with latencies\"] tbody tr')");
    let text = bench.browser.text("return document.querySelector('#health-state').textContent");
    bench.pictures("storage", "body");
    println!("page:   state {text}");
}

pub(crate) fn storage_on_hbase(bench: &Bench) {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = hbase.daemon(directory.path()).start();
    let point = json!({ "metric": "m", "timestamp": data::now_secs(), "value": 1, "tags": { "host": "a" } });
    let stored = http(daemon.address(), "POST", "/api/put?details&sync", Some(&point.to_string()));
    assert!(stored.body.contains("\"failed\":0"), "{}", stored.body);
    let address = page_of(bench, &daemon);
    let browser = &bench.browser;
    browser.open_anew(&format!("{address}#/storage"));
    browser
        .wait("document.querySelectorAll('[aria-label=\"Region servers\"] tbody tr').length > 0");
    browser.wait("document.querySelectorAll('[aria-label=\"Calls with latencies\"]').length === 2");
    let figures = browser.text("return [...document.querySelectorAll('.tile')].map(e => e.innerText.replaceAll('\\n', ' ')).join('; ')");
    assert!(figures.contains("Regions in the cache"), "{figures}");
    let servers =
        browser.text("return document.querySelector('[aria-label=\"Region servers\"]').innerText");
    let calls = browser.text("return [...document.querySelectorAll('[aria-label=\"Calls with latencies\"]')].pop().innerText");
    assert!(servers.contains("connected") && calls.contains("99 % within"), "{servers}\n{calls}");
    println!("page:   {figures}; {}", calls.replace(['\n', '\t'], " "));
    // The page's own requests end before the daemon.
    browser.open("about:blank");
    assert!(daemon.terminate().success());
}

pub(crate) fn cardinality(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("/cardinality");
    browser.wait("document.querySelector('[aria-label=Metrics] tbody tr')");
    bench.pictures("cardinality", "body");
    browser.click_text("many");
    browser.wait("!document.querySelector('[aria-label=Metrics]') && document.querySelector('.tile .v').textContent === '50'");
    println!(
        "page:   {}",
        browser.text("return document.querySelector('.tiles').innerText.replaceAll('\\n', ' ')")
    );
}

pub(crate) fn config(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("/config");
    browser.wait("document.querySelector('[aria-label=Configuration] tbody tr')");
    bench.pictures("config", "body");
    browser.fill("[type=search]", "allow_special");
    browser.wait("document.querySelectorAll('[aria-label=Configuration] tbody tr').length === 1");
    let row =
        browser.text("return document.querySelector('[aria-label=Configuration] tbody').innerText");
    assert!(row.contains("opentsdb.conf line 1"), "the source is shown: {row}");
    assert!(row.contains("Characters that names may have"), "the meaning is shown: {row}");
    println!("page:   {}", row.replace('\n', " "));
}

pub(crate) fn log(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("/log");
    browser.wait("document.querySelector('.log')?.textContent.length > 5");
    bench.pictures("log", "body");
    let text: Value =
        browser.script("return document.querySelector('.log').innerText.slice(0, 300)");
    println!(
        "page:   {}",
        text.as_str().unwrap_or_default().lines().take(3).collect::<Vec<_>>().join(" / ")
    );
}
