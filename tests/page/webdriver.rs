//! A client of WebDriver's protocol (W3C) for one session of Chromium, spoken to chromedriver over HTTP.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// Longest wait for a condition, and for a response of chromedriver. Only a defect takes longer, on a busy machine too.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Pause between two looks at a condition in the page.
const LOOK: Duration = Duration::from_millis(20);

/// Key of the id of an element in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that have no character (W3C WebDriver, 17.4.2).
pub(crate) mod key {
    pub(crate) const BACKSPACE: &str = "\u{E003}";
    pub(crate) const TAB: &str = "\u{E004}";
    pub(crate) const ENTER: &str = "\u{E007}";
    pub(crate) const SHIFT: &str = "\u{E008}";
    pub(crate) const ESCAPE: &str = "\u{E00C}";
    pub(crate) const END: &str = "\u{E010}";
    pub(crate) const LEFT: &str = "\u{E012}";
    pub(crate) const DOWN: &str = "\u{E015}";
    pub(crate) const CONTROL: &str = "\u{E009}";
}

/// A browser with one page. Ended when dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// Starts chromedriver and a headless Chromium with an empty profile, in a time zone if one is given.
    pub(crate) fn start(
        driver: &Path,
        chromium: &Path,
        profile: &Path,
        zone: Option<&str>,
    ) -> Self {
        let mut child = Command::new(driver)
            .envs(zone.map(|zone| ("TZ", zone)))
            .args(["--port=0", "--log-level=WARNING"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start chromedriver");
        let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
            })
            .expect("chromedriver names its port");
        // It must not block on a full pipe.
        thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver: child,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            session: String::new(),
        };
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--force-device-scale-factor=1",
            "--window-size=1360,860",
        ];
        let mut args: Vec<String> = flags.map(str::to_owned).into();
        args.push(format!("--user-data-dir={}", profile.display()));
        let started = browser.call(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": {"binary": chromium, "args": args},
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }}}),
        );
        started["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser
    }

    /// Sends a command of the session and returns its value.
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.exchange(method, path, body).expect("a response of chromedriver");
        if let Some(error) = answer["value"]["error"].as_str() {
            panic!("{method} {path} {body}: {error}: {}", answer["value"]["message"]);
        }
        answer["value"].clone()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT * 2))?;
        let body = if method == "POST" { body.to_string() } else { String::new() };
        // chromedriver accepts requests for its own host only.
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address.port(),
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        // It may keep the connection open.
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut json = vec![0; length];
        reader.read_exact(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url }));
    }

    /// Opens an address anew, also if only the part after `#` differs.
    pub(crate) fn open_anew(&self, url: &str) {
        self.open("about:blank");
        self.open(url);
    }

    pub(crate) fn back(&self) {
        self.command("POST", "/back", &json!({}));
    }

    pub(crate) fn forward(&self) {
        self.command("POST", "/forward", &json!({}));
    }

    /// Runs a function body in the page and returns its value.
    pub(crate) fn script(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub(crate) fn text(&self, script: &str) -> String {
        let value = self.script(script);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait(&self, expression: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let script = format!("try {{ return Boolean({expression}); }} catch {{ return false; }}");
        while self.script(&script) != Value::Bool(true) {
            if Instant::now() > deadline {
                let shown = self.text("return (document.querySelector('main') ?? document.body).innerText.slice(0, 3000)");
                panic!("never true: {expression}\n{shown}\n{}", self.troubles());
            }
            thread::sleep(LOOK);
        }
    }

    /// What may explain a page that does not become as expected: errors in the console, requests without a response.
    fn troubles(&self) -> String {
        let mut lines: Vec<String> = self.log("browser").iter().map(Value::to_string).collect();
        let mut open = BTreeMap::new();
        for entry in self.log("performance") {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())
                .unwrap_or_default();
            let (event, parameters) = (&event["message"]["method"], &event["message"]["params"]);
            let id = parameters["requestId"].as_str().unwrap_or_default().to_owned();
            match event.as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    open.insert(id, parameters["request"]["url"].to_string());
                }
                "Network.loadingFinished" => {
                    open.remove(&id);
                }
                "Network.loadingFailed" => {
                    let url = open.remove(&id).unwrap_or(id);
                    lines.push(format!("{url}: {}", parameters["errorText"]));
                }
                _ => {}
            }
        }
        lines.extend(open.into_values().map(|url| format!("{url}: no response")));
        lines.join("\n")
    }

    /// Waits until the page has painted its current state.
    pub(crate) fn painted(&self) {
        self.script(
            "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))",
        );
    }

    /// Waits until a query has ended and its points are drawn.
    pub(crate) fn wait_drawn(&self) {
        self.wait(
            "document.querySelector('.graph').ariaBusy === 'false' && Number(document.querySelector('.chart').dataset.points) > 0 \
             && document.querySelector('.legend tbody tr')",
        );
    }

    /// Contents of the clipboard, pasted into a field.
    pub(crate) fn pasted(&self) -> String {
        self.script(
            "const field = document.createElement('textarea'); field.id = 'paste'; document.body.append(field); field.focus()",
        );
        self.keys(&[key::CONTROL], &["v"]);
        let text = self.text("return document.querySelector('#paste').value");
        self.script("document.querySelector('#paste').remove()");
        text
    }

    fn element(&self, css: &str) -> String {
        self.wait(&format!("document.querySelector({})", json!(css)));
        let found =
            self.command("POST", "/element", &json!({ "using": "css selector", "value": css }));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    pub(crate) fn click(&self, css: &str) {
        let element = self.element(css);
        self.command("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Clicks the first button with this text.
    pub(crate) fn click_text(&self, text: &str) {
        let found = format!(
            "[...document.querySelectorAll('button,a,summary')].find(e => e.textContent.trim() === {} && e.offsetParent)",
            json!(text)
        );
        self.wait(&found);
        self.script(&format!(
            "document.querySelectorAll('[data-test]').forEach(e => e.removeAttribute('data-test')); {found}.dataset.test = '1'"
        ));
        self.click("[data-test]");
    }

    /// Types into an element, after its text.
    pub(crate) fn fill(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.command("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Replaces the text of a field.
    pub(crate) fn replace(&self, css: &str, text: &str) {
        self.click(css);
        self.script("document.activeElement.select()");
        self.fill(css, text);
    }

    /// Chooses an entry of a list.
    pub(crate) fn choose(&self, css: &str, value: &str) {
        self.element(css);
        let script = format!(
            "const list = document.querySelector({}); list.value = {value}; \
             list.dispatchEvent(new Event('change', {{ bubbles: true }})); return list.value === {value}",
            json!(css),
            value = json!(value)
        );
        assert_eq!(self.script(&script), true, "{css} has no {value}");
    }

    /// Presses keys, one after the other; the keys of `held` are down meanwhile.
    pub(crate) fn keys(&self, held: &[&str], keys: &[&str]) {
        let step = |kind: &str, value: &&str| json!({ "type": kind, "value": value });
        let mut actions: Vec<Value> = held.iter().map(|key| step("keyDown", key)).collect();
        for key in keys {
            actions.extend([step("keyDown", key), step("keyUp", key)]);
        }
        actions.extend(held.iter().map(|key| step("keyUp", key)));
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.command("POST", "/actions", &actions);
    }

    pub(crate) fn type_text(&self, text: &str) {
        let characters: Vec<String> = text.chars().map(String::from).collect();
        self.keys(&[], &characters.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Drags from one share of the chart's width to another, with these keys held.
    pub(crate) fn drag_chart(&self, held: &[&str], from: f64, to: f64) {
        let place = self.script(
            "const b = document.querySelector('.chart .over').getBoundingClientRect(); \
             return [b.left, b.top + b.height / 2, b.width]",
        );
        let x = |share: f64| {
            (place[0].as_f64().expect("left") + place[2].as_f64().expect("width") * share).round()
        };
        let y = place[1].as_f64().expect("top").round();
        let move_to =
            |share, ms| json!({ "type": "pointerMove", "duration": ms, "x": x(share), "y": y });
        let button = |kind: &str| json!({ "type": kind, "button": 0 });
        let key = |kind: &str, key: &&str| json!({ "type": kind, "value": key });
        let pause = json!({ "type": "pause" });
        let mut keys: Vec<Value> = held.iter().map(|held| key("keyDown", held)).collect();
        let mut pointer: Vec<Value> = keys.iter().map(|_| pause.clone()).collect();
        pointer.extend([
            move_to(from, 0),
            button("pointerDown"),
            move_to(f64::midpoint(from, to), 60),
            move_to(to, 60),
            button("pointerUp"),
        ]);
        keys.extend(vec![pause; 5]);
        keys.extend(held.iter().map(|held| key("keyUp", held)));
        let actions = json!({ "actions": [
            { "type": "key", "id": "keys", "actions": keys },
            { "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": pointer },
        ]});
        self.command("POST", "/actions", &actions);
    }

    /// Moves the pointer over the chart.
    pub(crate) fn hover_chart(&self, x: f64, y: f64) {
        let place = self.script(
            "const b = document.querySelector('.chart .over').getBoundingClientRect(); \
             return [b.left, b.top, b.width, b.height]",
        );
        let at = |side: usize, size: usize, share: f64| {
            (place[side].as_f64().expect("side") + place[size].as_f64().expect("size") * share)
                .round()
        };
        let moved =
            json!({ "type": "pointerMove", "duration": 30, "x": at(0, 2, x), "y": at(1, 3, y) });
        let actions = json!({ "actions": [
            { "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": [moved] },
        ]});
        self.command("POST", "/actions", &actions);
    }

    /// Clicks the chart, at pixels from its corner.
    pub(crate) fn click_chart(&self, x: f64, y: f64) {
        let corner = self.script(
            "const b = document.querySelector('.chart .over').getBoundingClientRect(); return [b.left, b.top]",
        );
        let at = |side: usize, from: f64| (corner[side].as_f64().expect("side") + from).round();
        let actions = json!([
            { "type": "pointerMove", "duration": 30, "x": at(0, x), "y": at(1, y) },
            { "type": "pointerDown", "button": 0 },
            { "type": "pointerUp", "button": 0 },
        ]);
        let actions = json!({ "actions": [
            { "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": actions },
        ]});
        self.command("POST", "/actions", &actions);
    }

    /// Puts fingers on the chart, at half of its height, moves each from one share of the width to another, and lifts
    /// them.
    pub(crate) fn touch_chart(&self, fingers: &[(f64, f64)]) {
        /// Movements between the two places.
        const STEPS: u32 = 6;
        let place = self.script(
            "const b = document.querySelector('.chart .over').getBoundingClientRect(); \
             return [b.left, b.top + b.height / 2, b.width]",
        );
        let number = |at: usize| place[at].as_f64().expect("a place");
        let points = |share: f64| -> Vec<Value> {
            let x =
                |(from, to): &(f64, f64)| number(0) + number(2) * (to - from).mul_add(share, *from);
            let point = |(id, finger)| json!({ "x": x(finger), "y": number(1), "id": id });
            fingers.iter().enumerate().map(point).collect()
        };
        let send = |kind: &str, points: Vec<Value>| {
            self.devtools(
                "Input.dispatchTouchEvent",
                &json!({ "type": kind, "touchPoints": points }),
            );
        };
        send("touchStart", points(0.0));
        if fingers.iter().any(|(from, to)| (from - to).abs() > f64::EPSILON) {
            (1..=STEPS)
                .for_each(|step| send("touchMove", points(f64::from(step) / f64::from(STEPS))));
        }
        send("touchEnd", Vec::new());
    }

    /// Runs a command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("POST", "/goog/cdp/execute", &body)
    }

    /// Entries of a log since the last call: `browser` is the console, `performance` the events of DevTools.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self.command("POST", "/se/log", &json!({ "type": kind }));
        entries.as_array().cloned().unwrap_or_default()
    }

    /// A picture of the page, as PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let encoded = self.command("GET", "/screenshot", &json!({}));
        BASE64_STANDARD.decode(encoded.as_str().expect("a picture")).expect("base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, also after a failed check.
        let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
