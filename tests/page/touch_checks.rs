//! Checks touch gestures on a phone, and every way to write, change and delete annotations.

use serde_json::{Value, json};
use tsd_testkit::http;

use crate::{Bench, data, webdriver::key};

const CPU: &str = "tz=UTC&m=avg:1m-avg:sys.cpu.user{dc=*}";

/// Seconds from start to end of the chart, and its start, as its link has them.
fn range(bench: &Bench) -> (f64, f64) {
    let found = bench.browser.script(
        "const at = n => Number(new URLSearchParams(location.hash.slice(1)).get(n)) / 1000; \
         return [at('end') - at('start'), at('start')]",
    );
    (found[0].as_f64().expect("a length"), found[1].as_f64().expect("a start"))
}

/// Moves fingers from one share of the chart's width to another, and waits until another range is drawn.
fn touch(bench: &Bench, fingers: &[(f64, f64)]) {
    let before = bench.browser.text("return location.hash");
    bench.browser.touch_chart(fingers);
    bench.browser.wait(&format!("location.hash !== {before:?}"));
    bench.wait_drawn();
}

/// Position of the annotation mark that is nearest to a share of the width.
fn mark_at(bench: &Bench, share: f64) -> (f64, f64) {
    let found = bench.browser.script(&format!(
        "const c = document.querySelector('.chart canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, 24).data; \
         let best = null; \
         for (let y = 0; y < 24; y += 1) for (let x = 0; x < c.width; x += 1) {{ \
           const i = 4 * (y * c.width + x); \
           const is = d[i] > 120 && d[i] < 160 && d[i + 1] > 75 && d[i + 1] < 115 && d[i + 2] < 40; \
           if (is && (!best || Math.abs(x - c.width * {share}) < Math.abs(best[0] - c.width * {share}))) best = [x, y]; \
         }} \
         return best"
    ));
    (found[0].as_f64().expect("a mark"), found[1].as_f64().expect("a mark"))
}

pub(crate) fn touched(bench: &Bench) {
    let browser = &bench.browser;
    bench.phone();
    browser.devtools(
        "Emulation.setTouchEmulationEnabled",
        &json!({ "enabled": true, "maxTouchPoints": 5 }),
    );
    bench.open_graph(&format!("start=2h-ago&{CPU}"));
    browser.script("document.querySelector('.chart').scrollIntoView({ block: 'center' })");
    // Two fingers that move apart zoom in: half of the range is as wide as the chart.
    touch(bench, &[(0.4, 0.25), (0.7, 0.85)]);
    let zoomed = range(bench);
    assert!((3_300.0..3_900.0).contains(&zoomed.0), "{zoomed:?}");
    // One finger moves the chart, and its range stays as long.
    touch(bench, &[(0.3, 0.6)]);
    let panned = range(bench);
    let moved = zoomed.1 - panned.1;
    assert!((panned.0 - zoomed.0).abs() < 3.0 && moved > 600.0, "{zoomed:?} {panned:?}");
    // Fingers that move together zoom out.
    touch(bench, &[(0.2, 0.4), (0.8, 0.6)]);
    let wide = range(bench);
    assert!(wide.0 > 2.0 * panned.0, "{panned:?} {wide:?}");
    // A tap shows the values there, and they stay after the finger is lifted.
    browser.touch_chart(&[(0.5, 0.5)]);
    browser.wait("!document.querySelector('.tip').hidden && document.querySelector('.tip').textContent.includes('sys.cpu.user')");
    assert_eq!(range(bench), wide, "a tap is no change of the range");
    browser.devtools("Emulation.setTouchEmulationEnabled", &json!({ "enabled": false }));
    bench.desktop();
    println!("page:   pinched to {} s, moved by {moved} s, pinched to {} s", zoomed.0, wide.0);
}

/// Annotations that the daemon has for the last hours.
fn stored(bench: &Bench) -> Vec<Value> {
    let uri = format!(
        "/api/query?start={}&m=avg:1m-avg:sys.cpu.user{{host=web01}}&global_annotations",
        data::now_secs() - 7_200
    );
    let uri = uri.replace('{', "%7B").replace('}', "%7D");
    let response = http(bench.daemon.address(), "GET", &uri, None);
    let series: Value = serde_json::from_str(&response.body).expect("JSON");
    let of = |name: &str| series[0][name].as_array().cloned().unwrap_or_default();
    [of("annotations"), of("globalAnnotations")].concat()
}

/// Seconds of a time, which may be in milliseconds.
fn seconds(time: &Value) -> f64 {
    let time = time.as_f64().expect("a time");
    if time > f64::from(u32::MAX) { time / 1_000.0 } else { time }
}

fn find<'a>(annotations: &'a [Value], description: &str) -> Option<&'a Value> {
    annotations.iter().find(|one| one["description"] == description)
}

/// Waits until the page's list has annotations with these descriptions, and no others.
fn wait_listed(bench: &Bench, listed: &str, gone: &str) {
    let rows = "[...document.querySelectorAll('[aria-label=Annotations] tbody tr')].map(e => e.innerText).join()";
    bench.browser.wait(&format!(
        "!document.querySelector('dialog') && {rows}.includes({listed:?}) && !({gone:?} && {rows}.includes({gone:?}))"
    ));
}

pub(crate) fn annotations_change(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph("start=1h-ago&tz=UTC&m=avg:1m-avg:sys.cpu.user{host=web01}");
    browser.click_text("Annotate");
    browser.wait("document.querySelector('dialog[open]')");
    let series = browser.text("return [...document.querySelectorAll('dialog option')].find(e => e.textContent.includes('web01')).value");
    browser.choose("dialog select", &series);
    browser.fill("dialog [name=description]", "disk replaced");
    browser.replace("dialog .grid2 input", "20m-ago");
    browser.script("document.querySelectorAll('dialog .grid2 input')[1].id = 'annotation-end'");
    browser.fill("#annotation-end", "10m-ago");
    browser.fill("dialog textarea", "the second one");
    browser.click_text("Store");
    wait_listed(bench, "disk replaced", "");
    let all = stored(bench);
    let written = find(&all, "disk replaced").expect("it is stored");
    assert!(written["tsuid"].is_string() && written["notes"] == "the second one", "{written}");
    let length = seconds(&written["endTime"]) - seconds(&written["startTime"]);
    assert!((length - 600.0).abs() < 1.0, "{written}");

    // Another tool adds something, which stays.
    let added = json!({ "startTime": written["startTime"], "tsuid": written["tsuid"], "custom": { "ticket": "7" } });
    let address = bench.daemon.address();
    assert_eq!(http(address, "POST", "/api/annotation", Some(&added.to_string())).status, 200);
    browser.click("#run");
    browser.wait("document.querySelector('.graph').ariaBusy === 'false'");

    // Changed from the list: another text, no end, no notes.
    browser.click_text("disk replaced");
    browser.wait("document.querySelector('dialog[open]')");
    browser.replace("dialog [name=description]", "disk and fan replaced");
    browser.script("document.querySelectorAll('dialog .grid2 input')[1].id = 'annotation-end'");
    browser.replace("#annotation-end", key::BACKSPACE);
    browser.replace("dialog textarea", key::BACKSPACE);
    browser.click_text("Store");
    wait_listed(bench, "disk and fan replaced", "disk replaced");
    let all = stored(bench);
    let changed = find(&all, "disk and fan replaced").expect("it is stored");
    assert!(find(&all, "disk replaced").is_none());
    assert_eq!(
        (&changed["startTime"], &changed["tsuid"]),
        (&written["startTime"], &written["tsuid"])
    );
    assert_eq!(changed["custom"]["ticket"], "7", "{changed}");
    assert!(changed["endTime"].as_i64().is_none_or(|end| end == 0), "{changed}");
    assert!(changed["notes"].as_str().is_none_or(str::is_empty), "{changed}");

    // Opened by its mark on the chart, and deleted.
    let start = seconds(&written["startTime"]);
    let (x, y) = mark_at(bench, 1.0 - (data::now_secs() as f64 - start) / 3_600.0);
    browser.click_chart(x, y);
    browser
        .wait("document.querySelector('dialog[open] h2').textContent.startsWith('Annotation of')");
    browser.click_text("Delete");
    browser.wait("!document.querySelector('dialog')");
    browser.wait("!document.body.innerText.includes('disk and fan replaced')");
    assert!(find(&stored(bench), "disk and fan replaced").is_none());
    println!("page:   written, changed, its end and notes removed, deleted by its mark: {changed}");
}
