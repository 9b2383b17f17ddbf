//! Runs the requests of `docs/http-api.md` in their order and compares the responses with those on the page.
//!
//! `UPDATE_DOCS=1 cargo test --test main http_doc` writes the responses.

use std::{collections::BTreeSet, fmt::Write, fs, net::SocketAddr, path::Path};

use serde_json::{Map, Value};
use tsd_testkit::{HttpResponse, http, wait_for};

use crate::{hbase_fake::HBase, in_process::directory, tsdb};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http-api.md");
const PERMISSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/authentication.md");

/// The directory of snapshots on the page, which stands for a temporary one.
const BACKUPS: &str = "/var/backups";
/// Longest line of a response.
const WIDTH: usize = 110;
/// What stands for text that is left out.
const LEFT_OUT: &str = "…";
/// Paths without an example: files of the page, and what is below them.
const WITHOUT_EXAMPLE: [&str; 3] = ["/", "/s", "/favicon.ico"];

const SETTINGS: [(&str, &str); 9] = [
    ("TSD_CORE_AUTO_CREATE_METRICS", "true"),
    ("TSD_CORE_META_ENABLE_REALTIME_UID", "true"),
    ("TSD_CORE_META_ENABLE_REALTIME_TS", "true"),
    ("TSD_CORE_META_ENABLE_TSUID_TRACKING", "true"),
    ("TSD_CORE_TREE_ENABLE_PROCESSING", "true"),
    ("TSD_HTTP_QUERY_ALLOW_DELETE", "true"),
    ("TSD_ROLLUPS_ENABLE", "true"),
    (
        "TSD_ROLLUPS_CONFIG",
        r#"{"aggregationIds":{"sum":0,"count":1},"intervals":[{"table":"tsdb","preAggregationTable":"tsdb","interval":"1m","rowSpan":"1h","defaultInterval":true},{"table":"tsdb-rollup-1h","preAggregationTable":"tsdb-rollup-1h","interval":"1h","rowSpan":"1d"}]}"#,
    ),
    ("TSD_CORE_HISTOGRAMS_CONFIG", r#"{"net.opentsdb.core.SimpleHistogramDecoder": 0}"#),
];

/// What `<!-- varies: a, b; first: 3; cluster -->` before a request says about its response.
#[derive(Default)]
struct Options {
    /// Fields whose values are left out.
    varies: BTreeSet<String>,
    /// Number of elements, fields or lines that are shown.
    first: Option<usize>,
    /// Text of the lines that are shown.
    only: String,
    /// Sent to a node of a cluster.
    cluster: bool,
    /// Repeated until the response has this text.
    until: Option<String>,
}

impl Options {
    fn parse(comment: &str) -> Self {
        let mut options = Self::default();
        for part in comment.split(';').map(str::trim) {
            match part.split_once(": ").unwrap_or((part, "")) {
                ("varies", names) => {
                    options.varies = names.split(", ").map(str::to_owned).collect();
                }
                ("first", number) => options.first = Some(number.parse().expect("a number")),
                ("only", text) => text.clone_into(&mut options.only),
                ("until", text) => options.until = Some(text.to_owned()),
                ("cluster", _) => options.cluster = true,
                (other, _) => panic!("unknown option {other}"),
            }
        }
        options
    }

    /// A value without what varies or is too much.
    fn shorten(&self, value: Value) -> Value {
        match value {
            Value::Array(items) => {
                let shown = self.first.unwrap_or(usize::MAX);
                let rest = (items.len() > shown).then(|| LEFT_OUT.into());
                let items = items.into_iter().take(shown).map(|item| self.shorten(item));
                Value::Array(items.chain(rest).collect())
            }
            Value::Object(fields) => {
                let shown = self.first.map_or(usize::MAX, |first| first.max(8));
                let rest = (fields.len() > shown).then(|| (LEFT_OUT.to_owned(), LEFT_OUT.into()));
                let field = |(name, value): (String, Value)| {
                    let varies = self.varies.contains(&name);
                    let value = if varies { LEFT_OUT.into() } else { self.shorten(value) };
                    (name, value)
                };
                Value::Object(fields.into_iter().take(shown).map(field).chain(rest).collect())
            }
            other => other,
        }
    }

    /// Lines of text without what varies or is too much.
    fn shorten_text(&self, text: &str) -> String {
        let shown = self.first.unwrap_or(usize::MAX);
        let lines: Vec<_> = text.lines().filter(|line| line.contains(&self.only)).collect();
        let rest = (text.lines().count() > shown.min(lines.len())).then_some(LEFT_OUT);
        let lines: Vec<_> = lines.into_iter().take(shown).chain(rest).collect();
        let text = lines.join("\n");
        if !self.varies.contains("digits") {
            return text;
        }
        let mut short = String::new();
        for c in text.chars() {
            if !c.is_ascii_digit() {
                short.push(c);
            } else if !short.ends_with(LEFT_OUT) {
                short.push_str(LEFT_OUT);
            }
        }
        short
    }
}

/// JSON in lines of [`WIDTH`] characters.
fn render_json(value: &Value, indent: usize, out: &mut String) {
    let compact = value.to_string();
    if indent + compact.len() <= WIDTH {
        out.push_str(&compact);
        return;
    }
    let mut lines = |brackets: [char; 2], items: Vec<(Option<&String>, &Value)>| {
        out.push(brackets[0]);
        for (at, (name, item)) in items.into_iter().enumerate() {
            let _ = write!(out, "{}\n{:2$}", if at > 0 { "," } else { "" }, "", indent + 2);
            if let Some(name) = name {
                let _ = write!(out, "{}: ", Value::from(name.as_str()));
            }
            render_json(item, indent + 2, out);
        }
        let _ = write!(out, "\n{:1$}{2}", "", indent, brackets[1]);
    };
    match value {
        Value::Array(items) => lines(['[', ']'], items.iter().map(|item| (None, item)).collect()),
        Value::Object(fields) => {
            let fields: &Map<String, Value> = fields;
            lines(['{', '}'], fields.iter().map(|(name, value)| (Some(name), value)).collect());
        }
        _ => out.push_str(&compact),
    }
}

/// A response as it stands on the page.
fn render(response: &HttpResponse, options: &Options, backups: &str) -> String {
    let body = response.body.replace(backups, BACKUPS);
    if body.trim().is_empty() {
        return format!("Response `{}`, without a body.\n", response.status);
    }
    let (kind, text) = match serde_json::from_str(&body) {
        Ok(value) => {
            let mut text = String::new();
            render_json(&options.shorten(value), 0, &mut text);
            ("json", text)
        }
        Err(_) => ("text", options.shorten_text(&body)),
    };
    format!("Response `{}`:\n\n```{kind}\n{}\n```\n", response.status, text.trim_end())
}

/// Daemons that the examples are sent to.
struct Servers {
    alone: SocketAddr,
    node: SocketAddr,
    backups: String,
}

/// Sends a request as it stands on the page: method and path, an empty line, a body.
fn send(request: &str, options: &Options, servers: &Servers) -> String {
    let (line, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let (method, uri) = line.trim().split_once(' ').expect("a method and a path");
    let body = body.trim_end().replace(BACKUPS, &servers.backups);
    let address = if options.cluster { servers.node } else { servers.alone };
    let respond =
        || http(address, method, uri, (!body.is_empty() || method == "POST").then_some(&body));
    let response = match &options.until {
        None => respond(),
        Some(text) => {
            let found = || Some(respond()).filter(|response| response.body.contains(text));
            wait_for(found).unwrap_or_else(|| panic!("{uri}: no {text}"))
        }
    };
    render(&response, options, &servers.backups)
}

/// The page with the responses that its requests get now.
fn run(page: &str, servers: &Servers) -> String {
    let mut written = String::new();
    let mut options = Options::default();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(written, "{line}");
        if let Some(comment) = line.strip_prefix("<!-- ") {
            options = Options::parse(comment.trim_end_matches(" -->"));
        }
        if line != "```http" {
            continue;
        }
        let request: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let request = request.join("\n");
        let _ = write!(written, "{request}\n```\n\n");
        let options = std::mem::take(&mut options);
        written.push_str(&send(&request, &options, servers));
        // The old response.
        while lines.next_if(|line| line.is_empty()).is_some() {}
        if lines
            .next_if(|line| line.starts_with("Response `"))
            .is_some_and(|line| line.ends_with(':'))
        {
            let mut fences = 0;
            while fences < 2 {
                fences += usize::from(lines.next().is_some_and(|line| line.starts_with("```")));
            }
        }
        if lines.peek().is_some_and(|line| !line.is_empty()) {
            written.push('\n');
        }
    }
    written
}

#[test]
fn responses_on_the_page_are_real() {
    let (data, backups, of_node) = (directory(), directory(), directory());
    let set =
        |daemon: tsd_testkit::DaemonBuilder, (key, value): &(&str, &str)| daemon.env(key, value);
    let daemon = SETTINGS.iter().fold(tsdb(data.path()), set).start();
    let hbase = HBase::with_tables();
    let node = hbase
        .daemon(of_node.path())
        .args(&["--ack", "cluster"])
        .env("TSD_CLUSTER_NAME", "tsd0")
        .start();
    let servers = Servers {
        alone: daemon.address(),
        node: node.address(),
        backups: backups.path().to_str().expect("a path").to_owned(),
    };
    let page = fs::read_to_string(PAGE).expect("the page");
    let written = run(&page, &servers);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &written).expect("docs/http-api.md is writable");
    } else {
        for (at, (line, expected)) in page.lines().zip(written.lines()).enumerate() {
            assert_eq!(line, expected, "docs/http-api.md:{}: UPDATE_DOCS=1 writes it", at + 1);
        }
        assert_eq!(page, written, "docs/http-api.md is outdated: set UPDATE_DOCS=1");
    }
}

#[test]
fn each_endpoint_has_an_example() {
    let table = fs::read_to_string(Path::new(PERMISSIONS)).expect("the page");
    let paths = table.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next());
    let paths: BTreeSet<String> = paths.map(|path| format!("/{path}")).collect();
    assert!(paths.len() > 40, "{}", paths.len());
    let page = fs::read_to_string(PAGE).expect("the page");
    let requests = page.split("```http\n").skip(1).filter_map(|block| block.split(' ').nth(1));
    let requests: Vec<&str> = requests.filter_map(|uri| uri.split(['?', '\n']).next()).collect();
    let is_missing = |path: &&String| {
        !WITHOUT_EXAMPLE.contains(&path.as_str())
            && !requests.iter().any(|request| {
                request
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    let missing: Vec<_> = paths.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/http-api.md has no example of {missing:?}");
}
