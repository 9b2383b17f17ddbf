//! Tests `/q` over HTTP: every form of a response, its headers, every form of an error, and
//! malicious requests.

mod attacks;
pub(crate) mod picture;

use std::fmt::Write;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::Node;
use tsd_testkit::{BinaryResponse, http, http_binary};

use self::picture::Picture;
use crate::in_process;

/// 2013-01-01, an hour boundary.
const T: i64 = 1_356_998_400;
/// Half of the hour with points.
const HALF: &str = "start=1356998400&end=1357000200";

/// A daemon with points: `m` of two hosts, a value a minute for an hour.
struct GraphDaemon {
    runtime: Runtime,
    node: Option<Node>,
    _directory: TempDir,
}

impl GraphDaemon {
    fn start(settings: &[(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let directory = in_process::directory();
        let node = in_process::start(&runtime, directory.path(), settings).expect("a daemon");
        let daemon = Self { runtime, node: Some(node), _directory: directory };
        let mut points = Vec::new();
        for minute in 0..60 {
            points.push(point("m", T + minute * 60, &minute.to_string(), "a"));
            points.push(point("m", T + minute * 60, &format!("{}.5", 2 * minute), "b"));
        }
        daemon.put(&points);
        daemon
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("a running daemon")
    }

    fn put(&self, points: &[String]) {
        let body = format!("[{}]", points.join(","));
        let response = http(self.node().address(), "POST", "/api/put?details", Some(&body));
        assert_eq!(response.status, 200, "{}", response.body);
        assert!(response.body.contains("\"failed\":0"), "{}", response.body);
    }

    fn get(&self, uri: &str) -> BinaryResponse {
        http_binary(self.node().address(), "GET", uri, "")
    }

    /// Status and text.
    fn text(&self, uri: &str) -> (u16, String) {
        let response = self.get(uri);
        (response.status, String::from_utf8(response.body).expect("a text"))
    }

    fn picture(&self, uri: &str) -> Picture {
        let response = self.get(uri);
        assert_eq!(response.status, 200, "{uri}: {}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.header("content-type"), Some("image/png"), "{uri}");
        Picture::decode(&response.body)
    }
}

impl Drop for GraphDaemon {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            in_process::stop(&self.runtime, node);
        }
    }
}

fn point(metric: &str, time: i64, value: &str, host: &str) -> String {
    let host = serde_json::Value::from(host);
    format!(
        r#"{{"metric":"{metric}","timestamp":{time},"value":{value},"tags":{{"host":{host}}}}}"#
    )
}

/// Percent-encodes every byte.
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02x}");
        out
    })
}

#[test]
fn ascii_has_a_line_for_each_point_that_was_read() {
    let daemon = GraphDaemon::start(&[]);
    let response = daemon.get(&format!("/q?{HALF}&m=sum:m%7Bhost=*%7D&ascii"));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain"));
    assert_eq!(response.header("age"), Some("0"));
    assert_eq!(response.header("cache-control"), Some("max-age=86400"));
    let text = String::from_utf8(response.body).expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    // The whole hour, although the request names half of it.
    assert_eq!(lines.len(), 120);
    assert_eq!(lines[0], format!("m {T} 0 host=a"));
    assert_eq!(lines[59], format!("m {} 59 host=a", T + 59 * 60));
    assert_eq!(lines[61], format!("m {} 2.5 host=b", T + 60));
    // Tags that differ are left out, and the form of check_tsd is the same.
    let (status, text) = daemon.text(&format!("/q?{HALF}&m=sum:m&ascii&nagios"));
    assert_eq!(status, 200);
    assert_eq!(text.lines().next(), Some(format!("m {T} 0.5").as_str()));
    let (_, text) = daemon.text(&format!("/q?{HALF}&m=sum:10m-avg:m%7Bhost=a%7D&ascii"));
    assert_eq!(text.lines().next(), Some(format!("m {T} 4.5 host=a").as_str()));
    // NaN has no line.
    let (_, text) = daemon.text("/q?start=1356998400&end=1357009200&m=sum:10m-avg-nan:m&ascii");
    assert_eq!(text.lines().count(), 6);
    assert_eq!(daemon.text("/q?start=1h-ago&m=sum:m&ascii"), (200, String::new()));
}

#[test]
fn json_describes_what_a_graph_shows() {
    let daemon = GraphDaemon::start(&[]);
    let summary = |parameters: &str| {
        let response = daemon.get(&format!("/q?{HALF}&{parameters}&json"));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("application/json"));
        let text = String::from_utf8(response.body).expect("a text");
        let (before, after) = text.split_once(",\"timing\":").expect("a time");
        let (_, after) = after.split_once(',').expect("more");
        format!("{before},{after}")
    };
    assert_eq!(summary("m=sum:m%7Bhost=*%7D"), r#"{"plotted":62,"etags":[[]],"points":120}"#);
    assert_eq!(
        summary("m=sum:m&m=sum:m%7Bhost=a%7D"),
        r#"{"plotted":62,"etags":[["host"],[]],"points":180}"#
    );
    assert_eq!(
        summary("m=sum:m%7Bhost=a%7D&m=sum:m%7Bhost=wildcard(z*)%7D&o=&o=axis%20x1y2"),
        r#"{"plotted":31,"etags":[[],null],"points":60}"#
    );
}

#[test]
fn json_counts_one_point_for_each_instant_of_the_rows() {
    let daemon = GraphDaemon::start(&[]);
    // Three cells of one instant.
    daemon.put(&[
        point("n", T, "5", "a"),
        point("n", T * 1_000, "300", "a"),
        point("n", T, "1.5", "a"),
        point("n", T + 1, "1", "a"),
    ]);
    let (_, text) = daemon.text(&format!("/q?{HALF}&m=sum:10m-avg:n&json"));
    assert!(text.contains("\"points\":2}"), "{text}");
}

#[test]
fn png_is_a_picture_of_the_points() {
    let daemon = GraphDaemon::start(&[]);
    let whole = daemon.picture(&format!("/q?{HALF}&m=sum:m%7Bhost=*%7D&png"));
    assert_eq!((whole.width, whole.height), (1_024, 768));
    assert!(whole.colors() > 20, "{}", whole.colors());
    let small = daemon.picture(&format!(
        "/q?{HALF}&m=sum:m%7Bhost=a%7D&wxh=300x200&style=lines&nokey&png&nocache&ignore=3"
    ));
    assert_eq!((small.width, small.height), (300, 200));
    // The line rises from the bottom left to the top right.
    let line = small.find([0x1f, 0x77, 0xb4]);
    let (first, last) = (line.first().expect("a line"), line.last().expect("a line"));
    assert!(first.0 < 60 && first.1 > 150, "{first:?}");
    assert!(last.0 > 270 && last.1 < 40, "{last:?}");
    assert!(line.len() > 200, "{}", line.len());
    // A fixed range moves it below the edge.
    let flat = daemon.picture(&format!(
        "/q?{HALF}&m=sum:m%7Bhost=a%7D&wxh=300x200&style=lines&nokey&yrange=[0:1000]&png"
    ));
    assert!(flat.find([0x1f, 0x77, 0xb4]).iter().all(|(_, y)| *y > 150));
    let tsuid = daemon.picture(&format!("/q?{HALF}&tsuid=sum:000001000001000001&wxh=300x200&png"));
    assert!(!tsuid.find([0x1f, 0x77, 0xb4]).is_empty());
    let empty = daemon.picture("/q?start=1h-ago&m=sum:m&png");
    assert!(empty.find([0, 0, 0]).len() > 1_000, "borders and a text");
}

#[test]
fn every_option_changes_the_picture() {
    let daemon = GraphDaemon::start(&[]);
    let uri = |options: &str| {
        format!("/q?{HALF}&m=sum:m%7Bhost=a%7D&m=sum:m%7Bhost=b%7D&wxh=240x160&{options}&png")
    };
    let plain = daemon.get(&uri("x")).body;
    assert_eq!(plain, daemon.get(&uri("nocache")).body, "the same points are drawn alike");
    for options in [
        "o=&o=axis%20x1y2",
        "yrange=[0:500]",
        "ylabel=rate%20of%20m",
        "yformat=%25.2f",
        "xformat=%25H%25M",
        "ylog",
        "key=out%20center%20top%20horiz%20box",
        "nokey",
        "title=a%20title",
        "bgcolor=x203040",
        "fgcolor=xff0000",
        "smooth=csplines",
        "smooth=unique&style=points",
        "style=points",
        "style=circles",
        "style=dots",
        "tz=Asia/Kolkata",
    ] {
        let drawn = daemon.get(&uri(options));
        assert_eq!(drawn.status, 200, "{options}");
        assert!(drawn.body != plain, "{options}");
    }
    for right in ["y2range=[0:5]", "y2label=b", "y2format=%25.2f", "y2log"] {
        let axis = daemon.get(&uri("o=&o=axis%20x1y2"));
        let drawn = daemon.get(&uri(&format!("o=&o=axis%20x1y2&{right}")));
        assert_eq!(drawn.status, 200, "{right}");
        assert!(drawn.body != axis.body, "{right}");
    }
}

#[test]
fn annotations_are_lines_with_texts() {
    let daemon = GraphDaemon::start(&[]);
    let uri =
        |options: &str| format!("/q?{HALF}&m=sum:m%7Bhost=a%7D&wxh=400x300&nokey&{options}&png");
    let plain = daemon.picture(&uri("x"));
    let note = format!(r#"{{"startTime":{},"description":"a new version"}}"#, T + 900);
    let response = http(daemon.node().address(), "POST", "/api/annotation", Some(&note));
    assert_eq!(response.status, 200, "{}", response.body);
    let red = [0xd6, 0x27, 0x28];
    assert!(plain.find(red).is_empty());
    assert!(daemon.picture(&uri("global_annotations")).find(red).len() > 100);
    assert!(daemon.picture(&uri("global_annotations&no_annotations")).find(red).is_empty());
}

#[test]
fn without_a_form_the_browser_is_sent_to_the_page() {
    let daemon = GraphDaemon::start(&[]);
    let response = daemon.get("/q?start=1h-ago&m=sum:m%7Bhost=%22%3E%3Cscript%3E%7D&html");
    assert_eq!(response.status, 200);
    let address = "/#start=1h-ago&m=sum:m%7Bhost=%22%3E%3Cscript%3E%7D&html";
    assert_eq!(response.header("location"), Some(address));
    assert!(response.header("content-type").is_some_and(|value| value.starts_with("text/html")));
    let page = String::from_utf8(response.body).expect("a text");
    let refresh = format!("content=\"0; url={}\"", address.replace('&', "&amp;"));
    assert!(page.contains("http-equiv=\"refresh\"") && page.contains(&refresh), "{page}");
    assert_eq!(daemon.get("/q").header("location"), Some("/"));
}

#[test]
fn errors_have_the_form_of_the_request() {
    let daemon = GraphDaemon::start(&[]);
    for (parameters, part) in [
        ("m=sum:none", "No such name for"),
        ("m=sum:m%7Bhost=a", "m{host=a"),
        ("m=nope:m", "nope"),
        ("", "Missing sub queries"),
        ("m=sum:m&o=&o=", "parameters"),
        ("m=sum:m&wxh=%3Cb%3E", "wxh"),
    ] {
        let uri = format!("/q?{HALF}&{parameters}");
        let (status, json) = daemon.text(&format!("{uri}&json"));
        assert_eq!(status, 400, "{uri}");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(value["err"].as_str().is_some_and(|text| text.contains(part)), "{json}");
        let (status, text) = daemon.text(&format!("{uri}&png"));
        assert!(status == 400 && text.contains(part), "{uri}: {text}");
        let (status, page) = daemon.text(&format!("{uri}&ascii"));
        assert_eq!(status, 400, "{uri}");
        assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<b>"), "{page}");
    }
    let (status, page) = daemon.text("/q?start=1356998400&end=1356998400&m=sum:m&ascii");
    assert!(status == 400 && page.contains("greater than or equal to end time"), "{page}");
    let deleted =
        http_binary(daemon.node().address(), "DELETE", &format!("/q?{HALF}&m=sum:m&png"), "");
    assert_eq!(deleted.status, 400);
    let head = http_binary(daemon.node().address(), "HEAD", &format!("/q?{HALF}&m=sum:m&png"), "");
    assert_eq!((head.status, head.header("content-type")), (200, Some("image/png")));
}

#[test]
fn responses_about_now_are_not_kept_for_long() {
    let daemon = GraphDaemon::start(&[]);
    let kept = |parameters: &str| {
        let response = daemon.get(&format!("/q?{parameters}&m=sum:m&wxh=100x100&png"));
        response.header("cache-control").map(str::to_owned)
    };
    assert_eq!(
        kept("start=2013/01/01-00:00&end=2013/01/02-00:00").as_deref(),
        Some("max-age=86400")
    );
    assert_eq!(kept("start=1d-ago").as_deref(), Some("max-age=84"));
    assert_eq!(kept("start=3d-ago&end=2d-ago").as_deref(), Some("max-age=84"));
    assert_eq!(kept("start=2013/01/01-00:00&end=2100/01/02-00:00").as_deref(), Some("max-age=0"));
}

#[test]
fn pictures_are_not_compressed_again_and_lines_are() {
    let daemon = GraphDaemon::start(&[]);
    let get = |form: &str| {
        let uri = format!("/q?{HALF}&m=sum:m&{form}");
        http_binary(daemon.node().address(), "GET", &uri, "Accept-Encoding: gzip\r\n")
    };
    assert_eq!(get("png").header("content-encoding"), None);
    assert_eq!(get("ascii").header("content-encoding"), Some("gzip"));
}

#[test]
fn reads_and_the_user_interface_can_be_disabled() {
    for (key, value) in [("tsd.mode", "wo"), ("tsd.core.enable_ui", "false")] {
        let runtime = Runtime::new().expect("a runtime");
        let directory = in_process::directory();
        let node =
            in_process::start(&runtime, directory.path(), &[(key, value)]).expect("a daemon");
        let response = http(node.address(), "GET", "/q?start=1h-ago&m=sum:m&json", None);
        let expected = (404, r#"{"err":"Page Not Found"}"#.to_owned());
        assert_eq!((response.status, response.body), expected, "{key}");
        in_process::stop(&runtime, node);
    }
}

#[test]
fn two_smoothings_are_drawn_and_the_others_are_refused_by_name() {
    let daemon = GraphDaemon::start(&[]);
    for smoothing in ["unique", "csplines"] {
        for points in ["m=sum:m%7Bhost=*%7D", "m=sum:10m-avg-nan:m", "m=sum:m%7Bhost=nobody%7D"] {
            let uri = format!("/q?{HALF}&{points}&smooth={smoothing}&wxh=200x150&png");
            let response = daemon.get(&uri);
            let expected = if points.contains("nobody") { 400 } else { 200 };
            assert_eq!(response.status, expected, "{uri}");
        }
    }
    for smoothing in [
        "frequency",
        "fnormal",
        "cumulative",
        "cnormal",
        "bins",
        "acsplines",
        "mcsplines",
        "bezier",
        "sbezier",
        "unwrap",
        "zsort",
        "kdensity",
    ] {
        let (status, text) = daemon.text(&format!("/q?{HALF}&m=sum:m&smooth={smoothing}&json"));
        assert_eq!(status, 400, "{smoothing}: {text}");
        assert!(
            text.contains(smoothing) && text.contains("it must be unique or csplines"),
            "{text}"
        );
    }
}

#[test]
fn a_picture_needs_memory_of_the_limit() {
    let daemon = GraphDaemon::start(&[("tsd.memory.limit", "268435456")]);
    let uri = |size: &str, form: &str| format!("/q?{HALF}&m=sum:m&wxh={size}&{form}");
    assert_eq!(daemon.text(&uri("4096x4096", "json")).0, 200, "only a picture needs it");
    // A smaller one may have space: it is an error of the request.
    let (status, text) = daemon.text(&uri("4096x4096", "png"));
    assert!(status == 400 && text.contains("memory"), "{text}");
    assert_eq!(daemon.picture(&uri("1024x768", "png")).width, 1_024);
    let (_, stats) = daemon.text("/stats");
    assert!(stats.contains("tsd.http.graph.requests "), "{stats}");
}
