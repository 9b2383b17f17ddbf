//! Checks the view with queries and chart.

use std::fs;

use serde_json::{Value, json};
use tsd_testkit::{http, wait_for};

use crate::{
    Bench,
    data::{self, FORMULA, HOSTILE, MANY_SERIES},
    hbase::{HBase, page_of},
    webdriver::key,
};

/// A graph of eight series, over the last hours.
const CPU: &str = "start=3h-ago&tz=UTC&m=avg:1m-avg:sys.cpu.user{host=*}";

const METRIC: &str = ".metric input";
const LEGEND: &str =
    "[...document.querySelectorAll('.legend tbody .toggle')].map(e => e.textContent)";

/// Start and end in the link, as texts.
fn range(bench: &Bench) -> (String, String) {
    let part = |name: &str| {
        bench.browser.text(&format!(
            "return new URLSearchParams(location.hash.slice(1)).get('{name}') ?? ''"
        ))
    };
    (part("start"), part("end"))
}

fn legend(bench: &Bench) -> Vec<String> {
    let names = bench.browser.script(&format!("return {LEGEND}"));
    let names = names.as_array().expect("a legend").iter();
    names.map(|name| name.as_str().expect("a name").to_owned()).collect()
}

/// True if the list of metrics has only metrics with this prefix.
fn options(prefix: &str) -> String {
    let items = "[...document.querySelectorAll('.metric .options:not([hidden]) li')]";
    format!("{items}.length && {items}.every(item => item.textContent.startsWith({prefix:?}))")
}

pub(crate) fn empty(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("");
    browser.wait("document.querySelector('#empty')");
    let text = browser.text("return document.querySelector('#empty').innerText");
    let port = browser.text("return location.port");
    assert!(text.contains("put sys.load") && text.contains("/api/put") && text.contains(&port));
    bench.picture("empty.png");
    browser.click("#send-test");
    bench.wait_drawn();
    assert_eq!(legend(bench).len(), 2, "a line for each series");
    println!("page:   {:?}", legend(bench));
    data::put_installation(bench.daemon.address());
}

pub(crate) fn listed(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("");
    browser.wait("document.querySelectorAll('.metric-list li').length > 3");
    bench.picture("metrics.png");
    browser.fill("#metrics [type=search]", "CPU.us");
    let names = "[...document.querySelectorAll('.metric-list li')].map(e => e.textContent).join()";
    browser.wait(&format!("{names} === 'sys.cpu.user'"));
    let status = browser.text("return document.querySelector('#metrics [role=status]').innerText");
    assert_eq!(status, "1 metric");
    browser.click(".metric-list button");
    bench.wait_drawn();
    assert_eq!(legend(bench).len(), 8, "a line for each series");
    assert!(browser.text("return location.hash").contains("sys.cpu.user"));
    browser.back();
    browser.wait("document.querySelector('#metrics')");
    // The field of the metric also finds any part.
    browser.click(METRIC);
    browser.type_text("user");
    browser.wait(
        "[...document.querySelectorAll('.metric .options:not([hidden]) li')].some(e => e.textContent === 'sys.cpu.user')",
    );
}

pub(crate) fn typed(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("");
    browser.click(METRIC);
    browser.type_text("sys.c");
    browser.wait(&options("sys.cpu"));
    browser.keys(&[], &[key::DOWN]);
    browser.wait(
        "document.querySelector('.metric li[aria-selected=true]')?.textContent === 'sys.cpu.user'",
    );
    browser.keys(&[], &[key::ENTER]);
    bench.wait_drawn();
    assert_eq!(legend(bench).len(), 1);
    browser.click_text("+ Tag filter");
    browser.click(".filter [aria-label='Tag key']");
    browser.wait(
        "document.querySelector('.filter .options:not([hidden])')?.textContent.includes('host')",
    );
    let keys = browser.text("return [...document.querySelectorAll('.filter .options:not([hidden]) li')].map(e => e.textContent).join()");
    browser.type_text("ho");
    browser.wait("document.querySelectorAll('.filter .options:not([hidden]) li').length === 1");
    browser.keys(&[], &[key::DOWN, key::ENTER]);
    browser.wait(&format!("{LEGEND}.length === 8"));
    println!("page:   completed metric and tag keys ({keys}), 8 series: {}", legend(bench)[0]);
    assert!(range(bench).0 == "1h-ago");
    assert!(browser.text("return location.hash").contains("sys.cpu.user{host=*}"));
}

pub(crate) fn zoomed(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    let before = range(bench);
    browser.drag_chart(&[], 0.3, 0.6);
    browser.wait("!location.hash.includes('3h-ago')");
    bench.wait_drawn();
    let zoomed = range(bench);
    let length = browser.text(
        "const [a, b] = ['start', 'end'].map(n => Number(new URLSearchParams(location.hash.slice(1)).get(n))); return String((b - a) / 1000)",
    );
    let seconds: f64 = length.parse().expect("seconds");
    assert!((2_500.0..4_500.0).contains(&seconds), "three tenths of three hours: {seconds}");
    browser.drag_chart(&[key::SHIFT], 0.3, 0.6);
    browser.wait(&format!("!location.hash.includes({:?})", zoomed.0));
    bench.wait_drawn();
    let panned = range(bench);
    assert!(panned.0 < zoomed.0, "{panned:?} is before {zoomed:?}");
    browser.back();
    browser.wait(&format!("location.hash.includes({:?})", zoomed.0));
    browser.back();
    browser.wait("location.hash.includes('3h-ago')");
    bench.wait_drawn();
    assert_eq!(range(bench), before);
    println!("page:   {zoomed:?}, then {panned:?}, then back to {before:?}");
}

pub(crate) fn linked(bench: &Bench) {
    let browser = &bench.browser;
    // Absolute times: both results are the same.
    let now = data::now_secs() - 60;
    let link = format!(
        "start={}&end={now}&tz=UTC&m=avg:1m-max:sys.cpu.user{{host=*,dc=fra}}&o=axis+x1y2&m=sum:rate{{counter}}:http.requests&o=&ylog&title=Two",
        now - 7_200
    );
    bench.open_graph(&link);
    let shown = legend(bench);
    assert_eq!(shown.len(), 6);
    browser.click_text("Table");
    browser.wait("document.querySelector('[aria-label=Points] tbody tr')");
    let table = browser.text("return document.querySelector('[aria-label=Points]').innerText");
    let copied = browser.text("return location.href");
    bench.browser.open_anew(&copied);
    browser.wait("document.querySelector('[aria-label=Points] tbody tr')");
    assert_eq!(legend(bench), shown);
    assert_eq!(
        browser.text("return document.querySelector('[aria-label=Points]').innerText"),
        table
    );
    assert_eq!(browser.text("return location.href"), copied);
    assert_eq!(browser.text("return document.title"), "Two – Saltern");
    println!("page:   {copied}");
    bench.pictures("table", "[aria-label=Points]");
    // A link of OpenTSDB's own page, as it makes them.
    let upstream = "start=2h-ago&m=sum:1m-avg:sys.cpu.user%7Bhost=web01%7Cweb02%7D&o=axis%20x1y2&yrange=%5B0:%5D&y2range=%5B0:100%5D&y2log&y2label=percent&key=out%20center%20top%20box&wxh=1500x700&style=linespoint&autoreload=15";
    bench.open_graph(upstream);
    let read = browser.script(
        "return [document.querySelector('.metric input').value, document.querySelector('#time-start').value, \
         [...document.querySelectorAll('.filter input')].map(e => e.value).join('='), \
         [...document.querySelectorAll('.timebar select')].pop().value, \
         [...document.querySelectorAll('.side details input')].map(e => e.value).filter(Boolean).join()]",
    );
    println!("page:   of OpenTSDB's link: {read}");
    assert_eq!(read[0], "sys.cpu.user");
    assert_eq!(read[1], "2h-ago");
    assert_eq!(read[2], "host=web01|web02");
    assert_eq!(read[3], "15");
    assert!(read[4].as_str().is_some_and(|axes| axes.contains("percent") && axes.contains("100")));
}

pub(crate) fn expressions(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph("start=2h-ago&tz=UTC&m=avg:1m-avg:sys.cpu.user{host=*}&o=off&m=avg:1m-avg:sys.mem.used{host=*}");
    browser.click_text("+ Expression");
    browser.fill("input.expression", &format!("a + b{}", key::ENTER));
    browser.wait(&format!("{LEGEND}.filter(name => name.startsWith('a + b')).length === 8"));
    browser.click_text("+ Function");
    browser.fill(
        "section[aria-label=Function] input.expression",
        &format!("scale(sum:1m-avg:sys.cpu.user,10){}", key::ENTER),
    );
    browser.wait(&format!("{LEGEND}.length === 17"));
    println!("page:   {:?}", legend(bench).iter().skip(8).step_by(8).collect::<Vec<_>>());
}

pub(crate) fn failed(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("start=1h-ago&m=sum:no.such.metric");
    browser.wait("document.querySelector('.problem')");
    let text = browser.text("return document.querySelector('.problem').innerText");
    assert!(text.contains("400") && text.contains("no.such.metric"), "{text}");
    println!("page:   {}", text.lines().collect::<Vec<_>>().join(" / "));
    browser.replace("#time-start", &format!("yesterday{}", key::ENTER));
    browser.wait(
        "document.querySelector('.problem')?.innerText.includes('This is no time: yesterday')",
    );
    // The next query that works shows no error.
    bench.open_graph(CPU);
    assert_eq!(browser.script("return document.querySelectorAll('.problem').length"), 0);
}

pub(crate) fn cancelled(bench: &Bench) {
    let browser = &bench.browser;
    // Later checks draw them.
    data::put_many(bench.daemon.address());
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = hbase.daemon(directory.path()).start();
    let point = json!({ "metric": "m", "timestamp": data::now_secs(), "value": 1, "tags": { "host": "a" } });
    let stored = http(daemon.address(), "POST", "/api/put?sync", Some(&point.to_string()));
    assert_eq!(stored.status, 204, "{}", stored.body);
    // The query does not end by itself.
    hbase.delay_scans();
    browser.open_anew(&format!("{}#start=1h-ago&m=sum:m", page_of(bench, &daemon)));
    browser.wait("document.querySelector('.graph')?.ariaBusy === 'true'");
    let running = || {
        let list = http(daemon.address(), "GET", "/api/stats/query", None);
        let list: Value = serde_json::from_str(&list.body).expect("JSON");
        list["running"].as_array().map_or(0, Vec::len)
    };
    wait_for(|| (running() > 0).then_some(())).expect("it runs");
    browser.click("#cancel");
    browser.wait("document.querySelector('.problem')?.innerText.includes('Cancelled')");
    wait_for(|| (running() == 0).then_some(())).expect("it has ended");
    println!("page:   it ran, and the daemon runs nothing any more");
    // The page's own requests end before the daemon.
    browser.open("about:blank");
}

pub(crate) fn hostile(bench: &Bench) {
    let browser = &bench.browser;
    let body = format!(
        r#"{{"startTime":{},"description":"<img src=x onerror=window.hostile=2>","notes":"<script>window.hostile=3</script>"}}"#,
        data::now_secs() - 300
    );
    assert_eq!(http(bench.daemon.address(), "POST", "/api/annotation", Some(&body)).status, 200);
    bench.open_graph(
        "start=1h-ago&tz=UTC&m=sum:app.users{host=*}&title=<img/src=x/onerror=window.hostile=4>",
    );
    assert!(legend(bench)[0].contains(HOSTILE), "{:?}", legend(bench));
    for step in 0..40 {
        browser.hover_chart(f64::from(step) / 40.0, 0.5);
    }
    browser.wait("document.querySelector('.tip').textContent.length > 0");
    browser.click(".filter [aria-label='Tag value']");
    browser.script("document.activeElement.select()");
    browser.type_text("<");
    browser.wait(
        "document.querySelector('.filter .options:not([hidden])')?.textContent.includes('onerror')",
    );
    // As it was: a wildcard without an asterisk is an error.
    browser.script("document.activeElement.select()");
    browser.type_text("*");
    browser.click_text("Table");
    browser.wait("document.querySelector('[aria-label=Points] tbody tr')");
    bench.open("start=1h-ago&m=sum:<img/src=x/onerror=window.hostile=5>");
    browser.wait("document.querySelector('.problem')?.innerText.includes('onerror')");
    bench.open("/cardinality");
    browser.wait("document.body.innerText.includes('onerror')");
    bench.open("/queries");
    browser.wait("document.querySelector('[aria-label=\"Completed queries\"]')?.textContent.includes('onerror')");
    for view in ["start=1h-ago&m=sum:app.users{host=*}", "/queries", "/cardinality"] {
        bench.open(view);
        browser.wait("document.querySelector('table')");
        assert_eq!(browser.text("return String(window.hostile)"), "undefined");
        assert_eq!(
            browser.script("return document.querySelectorAll('main img, main script').length"),
            0
        );
    }
    println!("page:   shown as text in legend, tip, options, tables and errors: {HOSTILE}");
}

/// Waits until the browser saves a file with this extension; removes the file, and returns its name
/// and content.
pub(crate) fn downloaded(bench: &Bench, extension: &str) -> (String, Vec<u8>) {
    let saved = || {
        let mut files =
            fs::read_dir(&bench.downloads).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let file = files.find(|file| file.extension().is_some_and(|ext| ext == extension))?;
        let bytes = fs::read(&file).ok().filter(|bytes| !bytes.is_empty())?;
        fs::remove_file(&file).ok()?;
        Some((file.file_name()?.to_string_lossy().into_owned(), bytes))
    };
    wait_for(saved).unwrap_or_else(|| panic!("no file .{extension} was saved"))
}

pub(crate) fn exported(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(&format!("start=1h-ago&tz=UTC&m=sum:{}&q=%7B%22metric%22:%22{FORMULA}%22,%22interval%22:%22none%22%7D", "app.users{host=*}"));
    browser.click_text("CSV");
    let csv = String::from_utf8(downloaded(bench, "csv").1).expect("text");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("time (UTC),timestamp_ms,"), "{}", lines[0]);
    assert!(lines[0].contains(&format!("'{FORMULA}")), "a formula is text: {}", lines[0]);
    assert!(lines.iter().any(|line| line.ends_with(",-4") || line.contains(",-4,")), "{csv}");
    // Whatever a spreadsheet takes for the begin of a formula.
    let fields = browser.script(
        "return import('/s/page/export.js').then(({ csvText }) => \
         ['=1+1', '+1', '-1', '@SUM(A1)', '\\t=1', '\\r=1', ' =1', '|x', '%x', 'a,b', 'a\"b', 'plain'].map(csvText))",
    );
    let expected = json!([
        "'=1+1",
        "'+1",
        "'-1",
        "'@SUM(A1)",
        "'\t=1",
        "\"'\r=1\"",
        "' =1",
        "'|x",
        "'%x",
        "\"a,b\"",
        "\"a\"\"b\"",
        "plain",
    ]);
    assert_eq!(fields, expected);
    browser.click_text("JSON");
    let json: Value = serde_json::from_slice(&downloaded(bench, "json").1).expect("JSON");
    assert_eq!(json[0]["metric"], "app.users");
    browser.click_text("PNG");
    let (_, png) = downloaded(bench, "png");
    assert!(png.starts_with(b"\x89PNG"));
    println!(
        "page:   CSV of {} lines: {}; JSON; PNG of {} bytes",
        lines.len(),
        lines[0],
        png.len()
    );
}

pub(crate) fn annotated(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph("start=1h-ago&tz=UTC&m=avg:1m-avg:sys.cpu.user{dc=*}");
    browser.script("document.querySelector('.chart .over').focus()");
    browser.keys(&[], &[key::END]);
    browser.keys(&[], &[key::LEFT, key::LEFT, key::LEFT, "a"]);
    browser.wait(
        "document.querySelector('dialog[open]') && document.activeElement.name === 'description'",
    );
    browser.type_text("deploy of web 2.1");
    browser.keys(&[], &[key::ENTER]);
    browser.wait("!document.querySelector('dialog') && document.querySelector('.status-line').innerText.includes('annotation')");
    let uri = format!("/api/annotations?start_time={}", data::now_secs() - 3_600);
    let stored = http(bench.daemon.address(), "GET", &uri, None).body;
    assert!(stored.contains("deploy of web 2.1"), "{stored}");
    browser.script("document.querySelector('.chart .over').focus()");
    bench.picture("annotation.png");
    println!("page:   stored: {stored}");
}

pub(crate) fn keys_only(bench: &Bench) {
    let browser = &bench.browser;
    bench.open("");
    browser.wait("document.querySelector('.metric input')");
    let tab_to = |wanted: &str| {
        for _ in 0..120 {
            if browser
                .script(&format!("return Boolean(document.activeElement?.matches({wanted:?}))"))
                == true
            {
                return;
            }
            browser.keys(&[], &[key::TAB]);
        }
        panic!("no number of tabs leads to {wanted}");
    };
    tab_to(METRIC);
    browser.type_text("sys.mem");
    browser.wait(&options("sys.mem"));
    browser.keys(&[], &[key::DOWN, key::ENTER]);
    bench.wait_drawn();
    tab_to(".chart .over");
    browser.keys(&[], &[key::END]);
    browser.keys(&[], &[key::LEFT, key::LEFT]);
    browser.wait("!document.querySelector('.tip').hidden");
    let said = browser.text("return document.querySelector('.chart [aria-live]').textContent");
    assert!(said.contains("sys.mem.used"), "{said}");
    browser.keys(&[], &["+"]);
    browser.wait("!location.hash.includes('1h-ago')");
    let zoomed = range(bench);
    bench.wait_drawn();
    browser.keys(&[key::SHIFT], &[key::LEFT]);
    browser.wait(&format!("!location.hash.includes({:?})", zoomed.0));
    browser.keys(&[], &[key::ESCAPE]);
    tab_to("#as-table");
    browser.keys(&[], &[key::ENTER]);
    browser.wait("document.querySelector('[aria-label=Points]')");
    tab_to(".legend th[aria-sort] button");
    browser.keys(&[], &[key::ENTER]);
    browser.wait("document.querySelector('.legend th[aria-sort=ascending]')");
    tab_to(".legend .toggle");
    browser.keys(&[], &[" "]);
    browser.wait("document.querySelector('.legend .toggle[aria-pressed=false]')");
    browser.keys(&[key::CONTROL], &[key::ENTER]);
    println!(
        "page:   typed, chosen, zoomed and panned, table shown, legend sorted, series hidden; heard: {said}"
    );
}

pub(crate) fn cost(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    browser.click(".cost > summary");
    let text = browser.text("return document.querySelector('.cost').innerText");
    assert!(
        text.contains("in the daemon")
            && text.contains("points read")
            && text.contains("aggregate"),
        "{text}"
    );
    browser.click_text("Explain");
    browser.wait("document.querySelector('.cost h3')?.textContent === 'Sub query 1'");
    let plan = browser.text("return document.querySelector('.cost h3 + pre').innerText");
    assert!(plan.contains("tsdb"), "{plan}");
    println!("page:   {}", plan.lines().next().unwrap_or_default());
}

pub(crate) fn many_points(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph("start=10000s-ago&tz=UTC&m=sum:many{series=*}");
    let painted = bench.first_paint_ms();
    browser.wait("Number(document.querySelector('.chart').dataset.points) > 400000");
    let points = browser.text("return document.querySelector('.chart').dataset.points");
    // Other sizes draw it again.
    let mut millis = Vec::new();
    for width in [1_360, 1_350, 1_340, 1_330, 1_360] {
        let before = browser.text("return document.querySelector('.chart canvas').width");
        let size =
            json!({ "width": width, "height": 860, "deviceScaleFactor": 1, "mobile": false });
        browser.devtools("Emulation.setDeviceMetricsOverride", &size);
        browser.wait(&format!("String(document.querySelector('.chart canvas').width) !== '{before}' || innerWidth === {width}"));
        millis.push(browser.text("return document.querySelector('.chart').dataset.drawMs"));
    }
    bench.desktop();
    println!(
        "page:   first contents painted after {painted:.0} ms; {points} points of {MANY_SERIES} series drawn in {} ms, with the read-back of a pixel",
        millis.join(", ")
    );
    bench.picture("many.png");
}
