//! Checks links (issue 37): a colleague with the link sees the same view. A copied link must also have the text of the focused
//! field.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::json;
use tsd_testkit::DaemonBuilder;

use crate::{
    Bench, TSDB, data,
    webdriver::{Browser, key},
};

const CPU: &str = "m=avg:1m-avg:sys.cpu.user{host=*}";

const NEW_YORK: &str = "America/New_York";
const TOKYO: &str = "Asia/Tokyo";

const TABLE: &str = "document.querySelector('[aria-label=Points]')";

/// Contents of a view: its fields, its legend with hidden series, and its table.
fn seen(browser: &Browser) -> String {
    browser.wait(&format!("{TABLE}?.querySelector('tbody tr')"));
    browser.text(&format!(
        "return [document.title, ...[...document.querySelectorAll('.stage input, .side input')].map(e => e.value), \
         ...[...document.querySelectorAll('.legend tr')].map(e => e.innerText + (e.querySelector('[aria-pressed=false]') ? ' hidden' : '')), \
         {TABLE}.innerText].join('\\n')"
    ))
}

/// Opens a graph that may be shown as a table.
fn open(browser: &Browser, url: &str) {
    browser.open_anew(url);
    browser.wait("document.querySelector('.graph').ariaBusy === 'false' && document.querySelector('.legend tbody tr')");
}

fn parameter(browser: &Browser, name: &str) -> String {
    browser.text(&format!("return new URLSearchParams(location.hash.slice(1)).get('{name}') ?? ''"))
}

fn is_instant(text: &str) -> bool {
    text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn same_in_another_zone(bench: &Bench) {
    let [here, there] = [NEW_YORK, TOKYO].map(|zone| bench.browser_in(zone));
    open(
        &here,
        &bench.url(&format!("start=6h-ago&{CPU}&ylabel=CPU,+percent&y2range=[0:9]&title=Shared")),
    );
    assert_eq!(parameter(&here, "tz"), NEW_YORK);
    // A range of the chart, hidden series, an order, and the table.
    here.drag_chart(&[], 0.4, 0.6);
    here.wait("!location.hash.includes('6h-ago')");
    here.wait_drawn();
    here.click_text("max");
    here.script("document.querySelectorAll('.legend .toggle')[1].click()");
    here.script("document.querySelectorAll('.legend .toggle')[4].click()");
    here.click_text("Table");
    let shown = seen(&here);
    assert_eq!(shown.matches(" hidden").count(), 2, "{shown}");
    assert!(shown.contains("time (America/New_York)"), "{shown}");
    let [start, end] = ["start", "end"].map(|name| parameter(&here, name));
    assert!(is_instant(&start) && is_instant(&end), "{start} {end}");
    let link = here.text("return location.href");
    open(&there, &link);
    assert_eq!(seen(&there), shown);
    assert_eq!(there.text("return location.href"), link);

    // Most are hidden: the link names the others.
    here.script(
        "document.querySelector('.legend .toggle').dispatchEvent(new MouseEvent('click', { bubbles: true, shiftKey: true }))",
    );
    here.wait("/[&]only=[0-9a-f]{8}(&|$)/.test(location.hash)");
    open(&there, &here.text("return location.href"));
    assert_eq!(seen(&there), seen(&here));
    println!("page:   {link}");
}

pub(crate) fn fixed_or_live(bench: &Bench) {
    let [here, there] = [NEW_YORK, TOKYO].map(|zone| bench.browser_in(zone));
    open(&here, &bench.url(&format!("start=2h-ago&{CPU}&show=table&autoreload=300")));
    here.click_text("Copy link");
    here.wait("document.querySelector('.status-line').innerText.includes('copied')");
    let said = here.text("return document.querySelector('.status-line').innerText");
    assert!(said.contains("fixed") && said.contains(NEW_YORK), "{said}");
    let fixed = here.pasted();
    // The address bar keeps the requested view.
    assert_eq!(
        (parameter(&here, "start"), parameter(&here, "end")),
        ("2h-ago".into(), String::new())
    );
    let table = here.text(&format!("return {TABLE}.innerText"));
    open(&there, &fixed);
    assert!(is_instant(&parameter(&there, "start")) && is_instant(&parameter(&there, "end")));
    assert_eq!(there.text(&format!("return {TABLE}.innerText")), table);
    assert_eq!(parameter(&there, "autoreload"), "");
    assert_eq!(there.script("return document.querySelector('#copy-live').hidden"), true);

    here.click("#copy-live");
    here.wait("document.querySelector('.status-line').innerText.includes('moves')");
    let live = here.pasted();
    assert!(live.contains("start=2h-ago&tz=America/New_York"), "{live}");
    println!("page:   {said}; live: {live}");
}

pub(crate) fn old_links(bench: &Bench) {
    let [here, there] = [NEW_YORK, TOKYO].map(|zone| bench.browser_in(zone));
    let text = |hours_ago: u64| {
        let at = data::now_secs() - hours_ago * 3_600;
        let iso = here.text(&format!("return new Date({at}000).toISOString().slice(0, 19)"));
        (at, iso.replace('-', "/").replace('T', "-"))
    };
    let [(from, start), (_, end)] = [2, 1].map(text);
    // Older links of ours have calendar times in a zone.
    let ours = format!("start={start}&end={end}&{CPU}&tz=UTC&show=table");
    let seen = [&here, &there].map(|browser| {
        open(browser, &bench.url(&ours));
        assert_eq!(parameter(browser, "start"), format!("{from}000"));
        seen(browser)
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains(&start), "the fields show the zone's times: {}", seen[0]);
    // OpenTSDB's page has no zone in its links: its times are in the browser's zone, which the address then names.
    let theirs =
        format!("start={start}&end={end}&m=sum:1m-avg:sys.cpu.user%7Bhost=*%7D&o=&wxh=1500x700");
    for (browser, zone, ahead) in [(&here, NEW_YORK, "-05:00|-04:00"), (&there, TOKYO, "+09:00")] {
        browser.open_anew(&bench.url(&theirs));
        browser.wait("document.querySelector('.graph')?.ariaBusy === 'false'");
        assert_eq!(parameter(browser, "tz"), zone);
        let instant = parameter(browser, "start");
        let iso = start.replacen('-', "T", 1).replace('/', "-");
        let expected = ahead
            .split('|')
            .map(|ahead| browser.text(&format!("return String(Date.parse('{iso}{ahead}'))")));
        assert!(expected.clone().any(|expected| expected == instant), "{zone}: {instant}");
        assert_eq!(browser.text("return document.querySelector('#time-start').value"), start);
    }
    println!("page:   {ours}");
}

/// The starts of the queries that the page sends from now on are kept in `window.starts`.
fn record_queries(browser: &Browser) {
    browser.script(
        "window.starts = []; const send = window.fetch; \
         window.fetch = (path, init) => { if (String(path).includes('/api/query?arrays')) window.starts.push(JSON.parse(init.body)); return send(path, init); }",
    );
}

pub(crate) fn focused_text_is_taken(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(&format!("start=3h-ago&tz=UTC&{CPU}"));
    record_queries(browser);
    let control_enter = || browser.keys(&[key::CONTROL], &[key::ENTER]);
    let select = |css: &str| {
        browser.click(css);
        browser.script("document.activeElement.select()");
    };
    // A time, a metric, the value of a filter, an interval.
    select("#time-start");
    browser.type_text("2h-ago");
    control_enter();
    let hours =
        browser.text("return String(window.starts.map(q => Math.round((q.end - q.start) / 36e5)))");
    assert_eq!(hours, "2", "one query, with the text");
    assert_eq!(parameter(browser, "start"), "2h-ago");
    bench.wait_drawn();
    for (css, text, part) in [
        (".metric input", "sys.mem.used", "sys.mem.used"),
        (".filter [aria-label='Tag value']", "web0*", "web0*"),
        ("[list=intervals]", "3m", "3m-avg"),
    ] {
        select(css);
        browser.type_text(text);
        control_enter();
        let sent = browser.text("return JSON.stringify(window.starts.at(-1))");
        assert!(sent.contains(part), "{css}: {sent}");
        browser.wait(&format!("decodeURIComponent(location.hash).includes('{part}')"));
        bench.wait_drawn();
    }
    browser.painted();
    thread::sleep(Duration::from_millis(400));
    let sent = browser.script("return window.starts.length");
    assert_eq!(sent, 4, "a query for each, and none with an old text");
    // The dialog of an annotation is stored from its notes.
    browser.click_text("Annotate");
    browser.wait("document.querySelector('dialog[open]')");
    browser.fill("dialog [name=description]", "by keys");
    browser.fill("dialog textarea", "notes");
    control_enter();
    browser.wait("!document.querySelector('dialog')");
    println!("page:   time, metric, filter, interval and notes were taken; {sent} queries");
}

pub(crate) fn entered_text_survives(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(&format!("start=3h-ago&tz=UTC&{CPU}&ylabel=x"));
    let enter = |css: &str, text: &str| {
        browser.click(css);
        browser.script("document.activeElement.select()");
        browser.type_text(text);
    };
    // The wheel leaves the focus in the field.
    enter(".metric input", "sys.mem.used");
    browser.script(
        "const c = document.querySelector('.chart .over'); const b = c.getBoundingClientRect(); \
         c.dispatchEvent(new WheelEvent('wheel', { ctrlKey: true, deltaY: -1, clientX: b.left + b.width / 2, clientY: b.top + 9, bubbles: true, cancelable: true }))",
    );
    browser.wait("!location.hash.includes('3h-ago') && location.hash.includes('sys.mem.used')");
    bench.wait_drawn();
    // Another view, by a click and by keys, and back.
    let label = "[...document.querySelectorAll('.side details')].pop().querySelectorAll('input[type=text]')[1]";
    browser.script(&format!("{label}.id = 'label'"));
    enter("#label", "by click");
    browser.click("nav [data-path='/log']");
    browser.wait("document.querySelector('.log')");
    browser.click("nav [data-path='']");
    browser.wait(&format!("{label}?.value === 'by click'"));
    browser.script(&format!("{label}.id = 'label'"));
    enter("#label", "by keys");
    browser.script("document.querySelector(\"nav [data-path='/config']\").focus()");
    browser.keys(&[], &[key::ENTER]);
    browser.wait("document.querySelector('[aria-label=Configuration]')");
    assert!(!browser.text("return location.hash").contains("ylabel"), "the address is the view's");
    browser.script("document.querySelector(\"nav [data-path='']\").focus()");
    browser.keys(&[], &[key::ENTER]);
    browser.wait(&format!("{label}?.value === 'by keys'"));
    // The legend is sorted, a series hidden, while a field has the focus.
    browser.script(&format!("{label}.id = 'label'"));
    enter("#label", "while sorting");
    browser.script("document.querySelectorAll('.legend th button')[2].click(); document.querySelector('.legend .toggle').click()");
    browser.keys(&[key::CONTROL], &[key::ENTER]);
    browser.wait("decodeURIComponent(location.hash).includes('while+sorting')");
    println!("page:   {}", browser.text("return location.hash"));
}

pub(crate) fn copied_over_plain_http(bench: &Bench) {
    let browser = &bench.browser;
    // An address that browsers do not trust, unlike 127.0.0.1.
    let page = format!("http://0.0.0.0:{}/", bench.daemon.address().port());
    bench.others.borrow_mut().push(page.clone());
    open(browser, &format!("{page}#start=2h-ago&tz=UTC&{CPU}"));
    assert_eq!(
        browser.script("return [isSecureContext, navigator.clipboard === undefined]"),
        json!([false, true])
    );
    browser.click("#copy-live");
    browser.wait("document.querySelector('.status-line').innerText.includes('copied')");
    assert_eq!(browser.pasted(), browser.text("return location.href"));
    // A browser that refuses shows the link to select.
    browser.script("document.execCommand = () => false");
    browser.click("#copy-live");
    browser.wait("document.activeElement.classList.contains('selectable')");
    assert_eq!(
        browser.text("const field = document.activeElement; return field.value.slice(field.selectionStart, field.selectionEnd)"),
        browser.text("return location.href")
    );
    println!("page:   copied at {page}, and shown where the browser refuses");
    browser.open("about:blank");
}

pub(crate) fn history(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_graph(&format!("start=3h-ago&tz=UTC&{CPU}"));
    browser.drag_chart(&[], 0.4, 0.6);
    browser.wait("!location.hash.includes('3h-ago')");
    bench.wait_drawn();
    browser.click(".legend .toggle");
    browser.click_text("Table");
    let graph = (browser.text("return location.hash"), seen(browser));
    assert!(graph.0.contains("hide="), "{}", graph.0);
    // The tab of the view that is shown changes nothing.
    browser.click("nav [data-path='']");
    assert_eq!(browser.text("return location.hash"), graph.0);
    browser.click("nav [data-path='/log']");
    browser.wait("document.querySelector('.log')");
    browser.fill("[type=search]", "listening");
    browser.choose(".panel-head select", "INFO");
    browser.wait("location.hash === '#/log?text=listening&level=INFO&tz=UTC'");
    // In a second tab of the browser, too.
    browser.script("document.querySelector('nav a').dispatchEvent(new MouseEvent('contextmenu', { bubbles: true }))");
    assert_eq!(browser.text("return document.querySelector('nav a').hash"), graph.0);
    browser.back();
    browser.wait("document.querySelector('.graph')");
    bench.wait_drawn();
    assert_eq!((browser.text("return location.hash"), seen(browser)), graph);
    browser.forward();
    browser.wait("document.querySelector('[type=search]')?.value === 'listening' && document.querySelector('.panel-head select').value === 'INFO'");
    bench.open("/config?text=allow_special&set=only&sort=1d&tz=Asia/Tokyo");
    browser.wait("document.querySelectorAll('[aria-label=Configuration] tbody tr').length === 1");
    assert_eq!(
        browser.script("return document.querySelector('main [type=checkbox]').checked"),
        true
    );
    bench.open("/cardinality");
    browser.wait("document.querySelector('[aria-label=Metrics] tbody tr')");
    browser.click("[aria-label=Metrics] .link");
    browser.wait(
        "location.hash.includes('metric=') && !document.querySelector('[aria-label=Metrics]')",
    );
    browser.back();
    browser.wait("document.querySelector('[aria-label=Metrics] tbody tr')");
    println!("page:   {} and the log's filter came back", graph.0);
}

pub(crate) fn refused(bench: &Bench) {
    let browser = &bench.browser;
    for (status, message) in [
        (401, "Who are you"),
        (403, "GUEST may not read this"),
        (421, "Add this host to tsd.http.hosts"),
    ] {
        bench.open("/config");
        browser.wait("document.querySelector('[aria-label=Configuration] tbody tr')");
        let body = json!({ "error": { "code": status, "message": message } });
        browser.script(&format!(
            "window.fetch = async () => new Response(JSON.stringify({body}), {{ status: {status} }})"
        ));
        for view in [
            "/overview",
            "/queries",
            "/storage",
            "/cardinality",
            "/log",
            "start=1h-ago&m=sum:sys.cpu.user",
        ] {
            browser.script(&format!("location.hash = {view:?}"));
            browser.wait(&format!(
                "document.querySelector('main .problem')?.innerText.includes({:?})",
                format!("{status} {message}")
            ));
            let empty = browser.script(
                "return [...document.querySelectorAll('.page-body')].some(e => e.offsetParent)",
            );
            assert_eq!(empty, false, "{view} shows panels that were never filled");
        }
        // Earlier data stays, below the error.
        browser.script("location.hash = '/config'");
        browser.wait(&format!(
            "document.querySelector('main .problem')?.innerText.includes({message:?})"
        ));
        let signs_in = browser.script("return Boolean(document.querySelector('#sign-in'))");
        assert_eq!(signs_in, status == 401, "how to sign in is said for a 401 alone");
        assert_ne!(
            browser.script(
                "return document.querySelectorAll('[aria-label=Configuration] tbody tr').length"
            ),
            0
        );
    }
    println!("page:   401, 403 and 421 with their texts, in every view");
    bench.open("/log");
    refused_by_role(bench);
}

/// A user who signs in by an address with credentials.
const PERSON: &str = "person";
const PASSWORD: &str = "correct-horse";

/// Returns a line of the file of users.
fn user_with_password() -> String {
    let mut made = Command::new(TSDB)
        .args(["user", "add", PERSON, "READER", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run");
    let mut input = made.stdin.take().expect("its input");
    writeln!(input, "{PASSWORD}").expect("write the password");
    drop(input);
    let output = made.wait_with_output().expect("its line");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Checks the texts for users who may not do everything that the page requests.
fn refused_by_role(bench: &Bench) {
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("users");
    let token = |name: &str, role: &str| {
        let words = ["user", "add", name, role, "--token", "--file", "-"];
        let made = Command::new(TSDB).args(words).output().expect("run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = text(&made.stdout);
        assert!(line.starts_with(name), "{made:?}");
        (text(&made.stderr).lines().last().expect("a token").to_owned(), line)
    };
    let [(guest, first), (reader, second)] =
        [("visitor", "GUEST"), ("viewer", "READER")].map(|(name, role)| token(name, role));
    fs::write(&users, first + &second + &user_with_password()).expect("write the users");
    let daemon = DaemonBuilder::new(TSDB, &directory.path().join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .start();
    let browser = bench.browser_in("UTC");
    let mut seen = Vec::new();
    for (token, views) in [
        (guest, &["/overview", "/queries", "/storage", "/cardinality", "/config", "/log", ""][..]),
        (reader, &["/log"]),
    ] {
        let headers = json!({ "headers": { "Authorization": format!("Bearer {token}") } });
        browser.devtools("Network.enable", &json!({}));
        browser.devtools("Network.setExtraHTTPHeaders", &headers);
        for view in views {
            browser.open_anew(&format!("http://{}/#{view}", daemon.address()));
            browser.wait("document.querySelector('main .problem')?.innerText.includes('403')");
            let text = browser.text("return document.querySelector('main .problem').innerText");
            assert!(text.len() > "403 ".len() + 10, "{view}: {text}");
            seen.push(format!("{view} {}", text.replace('\n', " ")));
        }
    }
    // A reader sees everything else.
    for (view, shown) in
        [("/config", "[aria-label=Configuration] tbody tr"), ("/storage", "#health-state")]
    {
        browser.open_anew(&format!("http://{}/#{view}", daemon.address()));
        browser.wait(&format!(
            "document.querySelector({shown:?}) && !document.querySelector('main .problem')"
        ));
    }
    browser.wait("document.querySelector('#user')?.innerText.startsWith('viewer')");
    browser.devtools("Network.setExtraHTTPHeaders", &json!({ "headers": {} }));
    browser.open_anew(&format!("http://{PERSON}:{PASSWORD}@{}/#/config", daemon.address()));
    browser.wait("document.querySelector('[aria-label=Configuration] tbody tr')");
    browser.wait(&format!("document.querySelector('#user')?.innerText.startsWith({PERSON:?})"));
    browser.click("#sign-out");
    browser.wait("document.title.startsWith('Signed out')");
    println!("page:   {}; {PERSON} signed out", seen.join("; "));
    browser.open("about:blank");
}
