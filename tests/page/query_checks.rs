//! Checks the options of a query other than metric and tags: every option of the form, how its result is drawn, time ranges,
//! and live refresh. Each option is chosen in the form and seen in the result.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use tsd_testkit::http;

use crate::{
    Bench,
    data::{self, COUNTER, HISTOGRAM, ROLLUP},
    webdriver::key,
};

const CPU: &str = "start=3h-ago&tz=UTC&m=avg:1m-avg:sys.cpu.user{host=*}";

/// The number in a column of a row of the legend.
fn stat(bench: &Bench, row: usize, column: usize) -> f64 {
    let script = format!(
        "const cell = document.querySelectorAll('.legend tbody tr')[{row}].cells[{column}]; \
         return (cell.querySelector('[title]')?.title ?? cell.textContent).replaceAll(/[^0-9.e+-]/g, '')"
    );
    let text = bench.browser.text(&script);
    text.parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

// Columns of the legend.
const MIN: usize = 2;
const MAX: usize = 3;
const POINTS: usize = 5;

/// Opens the folded part of the first sub query.
fn unfold(bench: &Bench) {
    bench.browser.script("document.querySelector('.card details').open = true");
}

/// A digest of the chart: other drawings have other ones.
const DRAWING: &str = "[...document.querySelector('.chart canvas').toDataURL()].reduce((h, c) => (h * 31 + c.charCodeAt(0)) | 0, 0)";

fn drawing(bench: &Bench) -> String {
    bench.browser.text(&format!("return {DRAWING}"))
}

/// Waits until the chart differs from `before`, and returns its digest.
fn redrawn(bench: &Bench, before: &str) -> String {
    bench.browser.wait(&format!("String({DRAWING}) !== {before:?}"));
    drawing(bench)
}

/// Waits until the number in a column of the legend's first row meets a condition on `n`.
fn wait_stat(bench: &Bench, column: usize, condition: &str) {
    bench.browser.wait(&format!(
        "(n => {condition})(Number(document.querySelector('.legend tbody tr').cells[{column}].querySelector('[title]')?.title \
         ?? document.querySelector('.legend tbody tr').cells[{column}].textContent))"
    ));
}

/// Waits until the legend has that many series.
fn wait_series(bench: &Bench, count: usize) {
    bench.browser.wait(&format!(
        "!document.querySelector('.problem') && document.querySelectorAll('.legend tbody tr').length === {count}"
    ));
}

/// Gives a control of a labelled field of a card the id `chosen`.
fn find_field(bench: &Bench, card: usize, label: &str) {
    bench.browser.script(&format!(
        "document.querySelector('#chosen')?.removeAttribute('id'); \
         const card = document.querySelectorAll('.card')[{card}]; \
         card.querySelector('details').open = true; \
         [...card.querySelectorAll('.field')].find(e => e.textContent.startsWith({label:?})).querySelector('input, select').id = 'chosen'"
    ));
}

pub(crate) fn filters(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    let mut seen = Vec::new();
    for (kind, filter, series) in [
        ("literal_or", "web01|web02", 2),
        ("iliteral_or", "WEB01|nobody", 1),
        ("not_literal_or", "web01", 7),
        ("not_iliteral_or", "WEB01|WEB02", 6),
        ("wildcard", "*07", 1),
        ("iwildcard", "WEB0*", 8),
        ("regexp", "web0[1-3]", 3),
    ] {
        browser.choose(".filter [aria-label=Filter]", kind);
        browser.replace(".filter [aria-label='Tag value']", &format!("{filter}{}", key::ENTER));
        wait_series(bench, series);
        assert!(browser.text("return decodeURIComponent(location.hash)").contains(filter));
        seen.push(format!("{kind}({filter}) {series}"));
    }
    // Not grouped: one series of all.
    browser.choose(".filter [aria-label=Filter]", "wildcard");
    browser.replace(".filter [aria-label='Tag value']", &format!("*{}", key::ENTER));
    wait_series(bench, 8);
    browser.click("[aria-label='Group by this tag']");
    wait_series(bench, 1);
    println!("page:   {}, not grouped 1", seen.join(", "));
}

pub(crate) fn values(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    assert!(stat(bench, 0, MIN) < 45.0);
    browser.click_text("+ Value filter");
    let number = "[aria-label='Number to compare with']";
    let comparison = "[aria-label='Comparison of values']";
    browser.fill(number, &format!("45{}", key::ENTER));
    browser.wait("location.hash.includes('value=gt(45)')");
    wait_stat(bench, MIN, "n > 45");
    let above = stat(bench, 0, POINTS);
    browser.choose(comparison, "between");
    browser.replace(number, &format!("30, 35{}", key::ENTER));
    browser.wait("location.hash.includes('value=between(30')");
    wait_stat(bench, MAX, "n <= 35");
    assert!(stat(bench, 0, MIN) >= 30.0);
    println!("page:   {above} points above 45, {} from 30 to 35", stat(bench, 0, POINTS));
    browser.click("[aria-label='Remove the filter']");
}

pub(crate) fn rates(bench: &Bench) {
    let browser = &bench.browser;
    // Not by the clock: points that leave the range meanwhile would change the counts.
    let last = *points_of(bench, COUNTER, "web01").last().expect("points");
    let start = last - 1_700;
    bench.open_graph(&format!("start={start}&end={last}&tz=UTC&m=sum:{COUNTER}"));
    let all = stat(bench, 0, POINTS);
    unfold(bench);
    let check = |label: &str| {
        let found = format!(
            "[...document.querySelectorAll('label.check')].find(e => e.textContent === {label:?})"
        );
        browser.wait(&found);
        browser.script(&format!("{found}.querySelector('input').click()"));
    };
    check("per second");
    browser.wait(&format!("location.hash.includes('rate:{COUNTER}')"));
    wait_stat(bench, MIN, "n < 0");
    // Ten in ten seconds.
    wait_stat(bench, MAX, "n === 1");
    // The counter fell from 1000 to 0: with a maximum of 1009 it counted ten on.
    check("counter");
    browser.wait("location.hash.includes('rate{counter}')");
    bench.wait_drawn();
    browser.replace("fieldset .grid2 input", &format!("1009{}", key::ENTER));
    browser.wait("location.hash.includes('rate{counter,1009}')");
    wait_stat(bench, MAX, "n <= 1");
    let (wrapped, points) = (stat(bench, 0, MAX), stat(bench, 0, POINTS));
    assert!((0.5..=1.0).contains(&wrapped), "{wrapped}");
    check("drop resets");
    browser.wait("decodeURIComponent(location.hash).includes('\"dropResets\":true')");
    wait_stat(bench, POINTS, &format!("n === {}", points - 1.0));
    println!("page:   {all} values, {points} rates up to {wrapped}, one less without the reset");
}

pub(crate) fn histograms(bench: &Bench) {
    let browser = &bench.browser;
    bench.open(&format!("start=30m-ago&tz=UTC&m=sum:{HISTOGRAM}"));
    browser.wait("document.querySelector('.card details')");
    find_field(bench, 0, "Percentiles");
    browser.fill("#chosen", &format!("50, 99{}", key::ENTER));
    wait_series(bench, 2);
    let names = browser.text(
        "return [...document.querySelectorAll('.legend .toggle')].map(e => e.textContent).join()",
    );
    assert!(names.contains("pct_50") && names.contains("pct_99"), "{names}");
    assert!(stat(bench, 0, MAX) < stat(bench, 1, MAX));
    bench.open_graph(&format!("start=30m-ago&tz=UTC&m=sum:show-histogram-buckets:{HISTOGRAM}"));
    let buckets = browser.text("return document.querySelectorAll('.legend tbody tr').length");
    println!("page:   {names}; {buckets} buckets");
}

pub(crate) fn rollups(bench: &Bench) {
    let browser = &bench.browser;
    let start = data::rollup_start();
    let end = start + 3_600;
    bench.open_graph(&format!("start={}&end={end}&tz=UTC&m=max:11m-sum:{ROLLUP}", start - 660));
    let rolled = stat(bench, 0, MAX);
    find_field(bench, 0, "Rollups");
    browser.choose("#chosen", "ROLLUP_RAW");
    browser.wait("location.hash.includes('rollup_raw')");
    wait_stat(bench, MAX, "n < 100");
    let raw = stat(bench, 0, MAX);
    assert!(rolled >= 1_000.0 && (10.0..=12.0).contains(&raw), "{rolled} {raw}");
    println!("page:   {rolled} of rollups, {raw} of points");
}

pub(crate) fn axes(bench: &Bench) {
    let browser = &bench.browser;
    let now = data::now_secs() - 60;
    bench.open_graph(&format!(
        "start={}&end={now}&tz=UTC&m=avg:1m-avg:sys.cpu.user{{host=*}}&m=avg:1m-avg:sys.mem.used",
        now - 7_200
    ));
    let mut before = drawing(bench);
    for (card, label, value, link) in [
        (0, "Draw as", "points", "style+points"),
        (0, "Draw as", "area", "style+area"),
        (0, "Draw as", "stack", "style+stack"),
        (1, "Axis", "2", "axis+x1y2"),
        (0, "Draw as", "line", "o=&"),
    ] {
        find_field(bench, card, label);
        browser.choose("#chosen", value);
        browser.wait(&format!("location.hash.includes({link:?})"));
        before = redrawn(bench, &before);
    }
    // Axes: a logarithm, a label, a range.
    browser.script("[...document.querySelectorAll('.side details')].pop().open = true");
    let field = |number: usize| {
        browser.script(&format!(
            "document.querySelector('#chosen')?.removeAttribute('id'); \
             [...[...document.querySelectorAll('.side details')].pop().querySelectorAll('input[type=text], select')][{number}].id = 'chosen'"
        ));
    };
    field(4);
    browser.choose("#chosen", "log");
    browser.wait("/ylog(&|$)/.test(location.hash)");
    before = redrawn(bench, &before);
    for (number, text, link) in [
        (1, "percent", "ylabel=percent"),
        (3, "300", "yrange=[:300]"),
        (5, "memory", "y2label=memory"),
    ] {
        field(number);
        browser.replace("#chosen", &format!("{text}{}", key::ENTER));
        browser.wait(&format!("decodeURIComponent(location.hash).includes({link:?})"));
        before = redrawn(bench, &before);
    }
    println!("page:   {}", browser.text("return location.hash"));
}

/// Times of the points of a host in the last hours, ascending.
fn points_of(bench: &Bench, metric: &str, host: &str) -> Vec<u64> {
    let uri = format!("/api/query?start=12h-ago&m=none:{metric}{{host={host}}}");
    let response = http(bench.daemon.address(), "GET", &uri, None);
    let series: Value = serde_json::from_str(&response.body).expect("JSON");
    let points = series[0]["dps"].as_object().unwrap_or_else(|| panic!("{uri}: {series}"));
    points.keys().map(|time| time.parse().expect("seconds")).collect()
}

pub(crate) fn gaps(bench: &Bench) {
    let browser = &bench.browser;
    // The host was down for half an hour.
    let points = points_of(bench, "sys.cpu.user", "web04");
    let pairs = points.iter().zip(&points[1..]);
    let (before, after) = pairs.max_by_key(|(before, after)| *after - *before).expect("points");
    assert!((1_800..1_900).contains(&(after - before)), "{before} to {after}");
    let link = format!(
        "start={}&end={}&tz=UTC&m=avg:1m-avg:sys.cpu.user{{host=web04}}",
        before - 3_600,
        after + 1_800
    );
    bench.open_graph(&link);
    // Pixels of the line's colour between two shares of the width.
    let pixels = |from: f64, to: f64| {
        let script = format!(
            "const c = document.querySelector('.chart canvas'); const w = Math.round(c.width * {to}) - Math.round(c.width * {from}); \
             const d = c.getContext('2d').getImageData(Math.round(c.width * {from}), 0, w, c.height).data; \
             let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i] < 60 && d[i + 1] > 70 && d[i + 1] < 160 && d[i + 2] > 140) n += 1; return n"
        );
        browser.script(&script).as_u64().expect("a number")
    };
    assert!(pixels(0.2, 0.45) > 100, "{}", pixels(0.2, 0.45));
    assert_eq!(pixels(0.58, 0.70), 0);
    assert!(pixels(0.85, 0.95) > 20);
    bench.open_graph(&format!("{link}&join"));
    assert!(pixels(0.58, 0.70) > 20, "joined");
    println!("page:   no line while the host was down, unless gaps are joined");
}

pub(crate) fn legend_is_sorted(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    for (column, name) in [(1, "last"), (2, "min"), (3, "max"), (4, "avg"), (5, "points")] {
        for direction in ["descending", "ascending"] {
            browser.script(&format!(
                "document.querySelectorAll('.legend th')[{column}].querySelector('button').click()"
            ));
            browser.wait(&format!(
                "document.querySelectorAll('.legend th')[{column}].ariaSort === '{direction}'"
            ));
            let sorted: Vec<f64> = (0..8).map(|row| stat(bench, row, column)).collect();
            let is_sorted = match direction {
                "descending" => sorted.is_sorted_by(|a, b| a >= b),
                _ => sorted.is_sorted(),
            };
            assert!(is_sorted, "{name} {direction}: {sorted:?}");
        }
    }
    browser.click(".legend .toggle");
    browser.wait("document.querySelector('.legend .toggle[aria-pressed=false]')");
    println!("page:   by last, min, max, avg and points, both ways; a series is hidden by a click");
}

pub(crate) fn times(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(CPU);
    browser.click("[data-range='15m']");
    browser.wait("location.hash.includes('start=15m-ago')");
    bench.wait_drawn();
    browser.replace("#time-start", &format!("2h-ago{}", key::ENTER));
    browser.wait("location.hash.includes('start=2h-ago')");
    browser.replace("#time-end", &format!("1h-ago{}", key::ENTER));
    browser.wait("location.hash.includes('end=1h-ago')");
    // A point a minute for an hour.
    wait_stat(bench, POINTS, "n >= 59 && n <= 62");
    // The same hour, written in another zone.
    browser.choose("#zone select", "Asia/Tokyo");
    browser.wait("location.hash.includes('tz=Asia/Tokyo')");
    let in_tokyo = |hours: u64| {
        let seconds = data::now_secs() + 9 * 3_600 - hours * 3_600;
        let text =
            browser.text(&format!("return new Date({seconds}000).toISOString().slice(0, 16)"));
        text.replace('-', "/").replace('T', "-")
    };
    let [start, end] = [("start", 2), ("end", 1)].map(|(field, hours)| {
        let text = in_tokyo(hours);
        browser.replace(&format!("#time-{field}"), &format!("{text}{}", key::ENTER));
        // The link has the instant.
        let instant =
            browser.text(&format!("const at = '{text}'.split('-'); return String(Date.parse(at[0].replaceAll('/', '-') + 'T' + at[1] + ':00+09:00'))"));
        browser.wait(&format!("location.hash.includes('{field}={instant}')"));
        text
    });
    browser.click_text("Table");
    let hour = start.split(':').next().expect("an hour");
    let digits =
        "document.querySelector('[aria-label=Points] tbody td').textContent.replaceAll(/\\D/g, '')";
    browser.wait(&format!(
        "{digits}.startsWith('{}')",
        hour.replace(|c: char| !c.is_ascii_digit(), "")
    ));
    wait_stat(bench, POINTS, "n >= 59 && n <= 62");
    let zone = browser.text("return document.querySelector('[aria-label=Points] th').innerText");
    assert_eq!(zone, "time (Asia/Tokyo)");
    // The choice is kept: the next checks have the browser's zone again.
    browser.choose("#zone select", "");
    bench.open("start=1h-ago&tz=Nowhere/None&m=sum:sys.cpu.user");
    bench.wait_drawn();
    let problem = browser.text("return document.querySelector('.problem').innerText");
    assert!(problem.contains("Nowhere/None"), "{problem}");
    println!("page:   an hour as 2h-ago to 1h-ago, and as {start} to {end} in Tokyo");
}

pub(crate) fn refreshed(bench: &Bench) {
    let browser = &bench.browser;
    let put = |value: u32| {
        let now = data::now_secs();
        let body = json!({ "metric": "app.live", "timestamp": now, "value": value, "tags": { "host": "a" } });
        assert_eq!(
            http(bench.daemon.address(), "POST", "/api/put", Some(&body.to_string())).status,
            204
        );
    };
    put(1);
    bench.open_graph("start=5m-ago&tz=UTC&m=sum:app.live");
    browser.choose(".timebar select", "1");
    browser.wait("location.hash.includes('autoreload=1')");
    for count in 2..4 {
        // A second later: another point.
        thread::sleep(Duration::from_millis(1_100));
        put(count);
        wait_stat(bench, POINTS, &format!("n === {count}"));
    }
    browser.choose(".timebar select", "0");
    browser.wait("!location.hash.includes('autoreload')");
    println!("page:   new points are drawn without a touch");
}

pub(crate) fn explained(bench: &Bench) {
    // A sub query for each option, all in one link: the page sends what the form shows.
    let link = format!(
        "start=3h-ago&tz=UTC&m=sum:5m-avg-zero:rate{{counter,,10}}:http.requests{{host=*}}{{dc=literal_or(fra)}}\
         &m=p99:1h-max-nan:explicit_tags:sys.cpu.user{{host=*,dc=*}}&m=none:10m-last-null:sys.mem.used{{value=ge(60)}}&m=count:0all-sum:{COUNTER}"
    );
    bench.open_graph(&link);
    let browser = &bench.browser;
    browser.click(".cost > summary");
    browser.click_text("Explain");
    browser.wait("document.querySelectorAll('.cost h3').length === 4");
    browser.click_text("Copy link");
    let kept = browser.text("return decodeURIComponent(location.hash)");
    for part in [
        "5m-avg-zero:rate{counter,,10}",
        "{dc=literal_or(fra)}",
        "explicit_tags",
        "10m-last-null",
        "value=ge(60)",
        "0all-sum",
    ] {
        let found = kept.contains(part) || kept.contains(&part.replace("literal_or(fra)", "fra"));
        assert!(found, "{part} of {kept}");
    }
    let stats: Value = browser.script("return document.querySelector('.cost').innerText.length");
    println!(
        "page:   four sub queries with fills, filters and rates, explained in {stats} characters"
    );
}
