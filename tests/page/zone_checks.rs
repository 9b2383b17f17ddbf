//! Checks the display of times (issue 37): the zone in every view and file, fields that show the whole time, gaps between days, and
//! the chart at the top on a phone.

use serde_json::json;
use tsd_testkit::http;

use crate::{Bench, data, graph_checks::downloaded};

const CPU: &str = "m=avg:1m-avg:sys.cpu.user{host=*}";

const DAY: u64 = 86_400;

pub(crate) fn one_zone(bench: &Bench) {
    const ZONE: &str = "Asia/Kathmandu";
    let browser = &bench.browser;
    bench.open_graph(&format!("start=2h-ago&{CPU}"));
    let before = browser.text("return document.querySelector('.chart canvas').toDataURL()");
    browser.choose("#zone select", ZONE);
    browser.wait("location.hash.includes('tz=Asia/Kathmandu')");
    browser.wait(&format!("document.querySelector('.chart').dataset.zone === {ZONE:?}"));
    browser.painted();
    assert_ne!(browser.text("return document.querySelector('.chart canvas').toDataURL()"), before);
    assert_eq!(browser.text("return document.querySelector('#range-zone').innerText"), ZONE);
    bench.wait_drawn();
    browser.hover_chart(0.5, 0.5);
    browser.wait("!document.querySelector('.tip').hidden");
    let tip = browser.text("return document.querySelector('.tip .when').innerText");
    assert!(tip.ends_with(ZONE), "{tip}");
    // The time of the tip is that zone's: 5:45 ahead of UTC.
    browser.click_text("Annotate");
    browser.wait(&format!("document.querySelector('dialog').innerText.includes('Time ({ZONE})')"));
    browser.fill("dialog [name=description]", "zoned");
    browser.click_text("Store");
    browser.wait(&format!(
        "document.querySelector('[aria-label=Annotations] th')?.innerText === 'time ({ZONE})'"
    ));
    browser.click_text("zoned");
    browser.wait(&format!("document.querySelector('dialog h2').innerText.endsWith({ZONE:?})"));
    browser.click_text("Delete");
    browser.wait("!document.querySelector('dialog')");
    browser.click_text("Table");
    browser.wait(&format!(
        "document.querySelector('[aria-label=Points] th').innerText === 'time ({ZONE})'"
    ));
    browser.click_text("CSV");
    let csv = String::from_utf8(downloaded(bench, "csv").1).expect("text");
    let row = csv.lines().nth(1).expect("a row");
    assert!(csv.starts_with(&format!("time ({ZONE}),timestamp_ms,")), "{csv}");
    let mut fields = row.split(',');
    let (time, ms) = (fields.next().expect("a time"), fields.next().expect("an instant"));
    assert!(time.ends_with("+05:45"), "{row}");
    assert_eq!(browser.text(&format!("return String(Date.parse('{time}'))")), ms);

    // The choice holds for the other views, and for the next visit.
    bench.open("/overview");
    browser.wait(&format!("document.querySelector('.chart').dataset.zone === {ZONE:?}"));
    bench.open("/queries");
    browser.wait(&format!("document.querySelector('[aria-label=\"Completed queries\"] th')?.innerText === 'ended ({ZONE})'"));
    bench.open("/log");
    browser.wait(&format!("document.querySelector('.panel-head').innerText.includes('Times in {ZONE}') && document.querySelector('.log div')"));
    let first = "document.querySelector('.log div span').innerText";
    let there = browser.text(&format!("return {first}"));
    browser.choose("#zone select", "Pacific/Auckland");
    browser.wait("document.querySelector('.panel-head').innerText.includes('Times in Pacific/Auckland') && location.hash === '#/log?tz=Pacific/Auckland'");
    browser.wait(&format!("{first} !== {there:?}"));
    // The days of the index are UTC's in any zone.
    bench.open("/cardinality?tz=Asia/Tokyo");
    browser.wait("document.querySelector('.tile .v')");
    assert_eq!(browser.text("return document.querySelector('#zone select').value"), "Asia/Tokyo");
    // A link's zone is not kept.
    bench.open("/log");
    browser.wait("location.hash === '#/log?tz=Pacific/Auckland'");
    browser.choose("#zone select", "");
    println!("page:   {tip}; {row}; log at {there}");
}

pub(crate) fn file_names(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph("start=2026/01/31-12:00&end=2030/02/01-13:30:05&tz=Europe/Berlin&m=sum:1d-avg:sys.cpu.user&m=sum:1d-avg:sys.mem.used");
    let mut names = Vec::new();
    for (text, extension) in [("CSV", "csv"), ("JSON", "json"), ("PNG", "png")] {
        browser.click_text(text);
        let (name, bytes) = downloaded(bench, extension);
        assert_eq!(
            name,
            format!(
                "sys.cpu.user-and-1-more_20260131T120000_20300201T133005_Europe-Berlin.{extension}"
            )
        );
        assert!(!bytes.is_empty());
        names.push(name);
    }
    // Names are text of other people.
    let odd = browser.script(
        "return Promise.all([import('/s/page/export.js'), import('/s/page/view.js')]).then(([{ fileName }, { newView, newSub }]) => \
         ['../../etc/passwd', '<img/src=x>', '.hidden', '-rf', 'größe.größer', 'a'.repeat(300), '', 'CON:\\u0000\\n'].map(metric => \
           fileName({ ...newView(), zone: 'UTC', subs: [{ ...newSub(), metric }] }, { startMs: 0, endMs: 1000, zone: 'UTC' }, 'csv')))",
    );
    let range = "_19700101T000000_19700101T000001_UTC.csv";
    let expected = [
        "etc-passwd",
        "img-src-x",
        "hidden",
        "rf",
        "größe.größer",
        &"a".repeat(60),
        "points",
        "CON",
    ]
    .map(|name| format!("{name}{range}"));
    assert_eq!(odd, json!(expected));
    println!("page:   {}", names.join(", "));
}

pub(crate) fn wide_fields(bench: &Bench) {
    let browser = &bench.browser;
    let cut = "[...document.querySelectorAll('.timebar input.time')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.value)";
    for is_phone in [false, true] {
        if is_phone {
            bench.phone();
        }
        for (start, end) in
            [("1790000000000", "1790003600000"), ("1790000000123", "1790000001456"), ("1h-ago", "")]
        {
            bench.open(&format!(
                "start={start}&end={end}&tz=America/Argentina/ComodRivadavia&{CPU}"
            ));
            browser.wait("document.querySelector('.timebar input.time')");
            assert_eq!(browser.script(&format!("return {cut}")), json!([]), "phone: {is_phone}");
            let wide = browser.script("return document.documentElement.scrollWidth <= innerWidth");
            assert_eq!(wide, true, "phone: {is_phone}");
        }
        assert_eq!(browser.text("return document.querySelector('#time-start').value"), "1h-ago");
    }
    bench.desktop();
    println!("page:   times to the millisecond are shown whole");
}

pub(crate) fn chart_first(bench: &Bench) {
    let browser = &bench.browser;
    bench.phone();
    bench.open_graph(&format!("start=6h-ago&tz=UTC&{CPU}"));
    let shown = "document.querySelector('.side-body').offsetParent !== null";
    assert_eq!(browser.script(&format!("return {shown}")), false);
    let places = browser.script(
        "const chart = document.querySelector('.chart').getBoundingClientRect(); return [chart.top, chart.bottom, innerHeight, scrollY]",
    );
    let place = |at: usize| places[at].as_f64().expect("pixels");
    assert!(place(3) == 0.0 && place(0) > 0.0 && place(1) <= place(2), "{places}");
    // The form comes when it is asked for, and first where nothing is asked yet.
    browser.click(".form-button");
    browser.wait(shown);
    browser.click(".form-button");
    browser.wait(&format!("!({shown})"));
    bench.open("");
    browser.wait(shown);
    bench.desktop();
    bench.open_graph(&format!("start=6h-ago&tz=UTC&{CPU}"));
    assert_eq!(browser.script(&format!("return {shown}")), true);
    println!("page:   390 × 844: the chart ends at {} of {}", place(1), place(2));
}

pub(crate) fn cardinality_gaps(bench: &Bench) {
    let browser = &bench.browser;
    let today = data::now_secs() / DAY * DAY;
    for day in [9, 8, 7, 3, 2, 1] {
        let body = json!({ "metric": "app.daily", "timestamp": today - day * DAY + 3_600, "value": 1, "tags": { "host": "a" } });
        let stored = http(bench.daemon.address(), "POST", "/api/put", Some(&body.to_string()));
        assert_eq!(stored.status, 204, "{}", stored.body);
    }
    bench.open("/cardinality?metric=app.daily");
    browser.wait("Number(document.querySelector('.chart')?.dataset.points) === 6");
    browser.painted();
    // Of nine days, each of one share of the width, pixels that differ from a column of the empty days.
    let pixels = |share: f64| {
        let script = format!(
            "const c = document.querySelector('.chart canvas'); const at = Math.round(c.width * {share}); \
             const d = c.getContext('2d').getImageData(at, 20, 1, c.height - 70).data; \
             let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 2] - d[i] > 12) n += 1; return n"
        );
        browser.script(&script).as_u64().expect("a number")
    };
    let (before, gap, after) = (pixels(0.15), pixels(0.52), pixels(0.88));
    assert!(before > 10 && after > 10, "{before} {gap} {after}");
    assert_eq!(gap, 0, "{before} {after}");
    println!("page:   {before} and {after} pixels where days have series, {gap} between them");
}
