//! Tests requests that execute commands, write files or inject scripts in OpenTSDB, and hostile
//! texts.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use tsd_testkit::http;

use super::{GraphDaemon, HALF, T, encode, point};

/// Values of parameters as they are published, among others for CVE-2018-12972, CVE-2018-12973,
/// CVE-2018-13003, CVE-2020-35476, CVE-2023-25826 and CVE-2023-25827.
const ATTACKS: &[(&str, &str)] = &[
    ("o", "`touch /tmp/poc`"),
    ("o", "axis x1y2\nsystem('id')"),
    ("key", "out right top`ping -c1 127.0.0.1`"),
    ("key", ";system \"id\" \""),
    ("key", "%3Bsystem%20%22id%22"),
    ("wxh", "1516x644`id`"),
    ("wxh", "1516x644\nsystem 'id'"),
    ("style", "linespoint`id`"),
    ("style", "linespoint\nset output '/tmp/x'"),
    ("smooth", "unique;system('id')"),
    ("yrange", "[0:`id`]"),
    ("yrange", "[33:system('touch /tmp/poc.txt')]"),
    ("yrange", "[33:system(\"wget http://127.0.0.1/\")]"),
    ("yrange", "[0:]\nsystem('id')"),
    ("yrange", "[0:1];system('id')"),
    ("y2range", "[33:system('id')]"),
    ("ylabel", "\";system('id');#"),
    ("ylabel", "`id`"),
    ("ylabel", "a\" \nsystem('id')\n#"),
    ("y2label", "\\\";system('id')"),
    ("title", "`id`"),
    ("title", "\"; system 'id'; \""),
    ("title", "$(id)"),
    ("title", "%60id%60"),
    ("yformat", "%s\";system('id')"),
    ("y2format", "`id`"),
    ("xformat", "%H:%M\"\nsystem('id')"),
    ("bgcolor", "x000000\nsystem('id')"),
    ("bgcolor", "`id`"),
    ("fgcolor", "x000000;id"),
    ("ylabel", "<script>alert(1)</script>"),
    ("title", "<img src=x onerror=alert(1)>"),
    ("m", "sum:<script>alert(1)</script>"),
    ("m", "<script>alert(1)</script>:m"),
    ("tz", "<script>alert(1)</script>"),
    ("tz", "../../../../etc/passwd"),
    ("start", "<script>alert(1)</script>"),
    ("end", "`id`"),
    ("wxh", "100000x100000"),
    ("wxh", "4097x100"),
    ("wxh", "0x0"),
    ("wxh", "18446744073709551716x100"),
    ("yrange", "[0:1e400]"),
    ("yrange", "[-1e308:1e308]"),
    ("yrange", "[1:1]"),
    ("yformat", "%99999999999999999999f"),
    ("yformat", "%.1000000000f"),
    ("yformat", "%n%n%n%s%p"),
    ("xformat", "%999d"),
    ("bgcolor", "x00000g"),
    ("fgcolor", "#ffffff"),
];

#[test]
fn attacks_are_refused() {
    let daemon = GraphDaemon::start(&[]);
    for (name, value) in ATTACKS {
        // The last value of a parameter counts, and each `m` is a sub query.
        let uri = format!("/q?{HALF}&m=sum:m&{name}={}", encode(value));
        let (status, json) = daemon.text(&format!("{uri}&json"));
        assert_eq!(status, 400, "{name}={value}: {json}");
        let error: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(error["err"].as_str().is_some_and(|text| !text.is_empty()), "{json}");
        let (status, page) = daemon.text(&format!("{uri}&ascii"));
        assert_eq!(status, 400, "{name}={value}: {page}");
        let body = page.split_once("<blockquote>").expect("a message").1;
        let message = body.split_once("</blockquote>").expect("its end").0;
        assert!(!message.contains(['<', '>', '"']), "{name}={value}: {message}");
        let (status, text) = daemon.text(&format!("{uri}&png"));
        assert!(status == 400 && text.len() > 1, "{name}={value}: {text}");
    }
}

#[test]
fn hostile_names_are_drawn_as_texts() {
    let daemon = GraphDaemon::start(&[("tsd.core.tag.allow_specialchars", "`<>\"'\\;$(){}%#&|!")]);
    let hosts = [
        "`id`".to_owned(),
        "\";system('id');\"".to_owned(),
        "<script>alert(1)</script>".to_owned(),
        "%n%s\\\\".to_owned(),
        "\u{f8}\u{e9}\u{df}".to_owned(),
        "x".repeat(250),
    ];
    let points: Vec<String> = hosts.iter().map(|host| point("hostile", T, "1", host)).collect();
    daemon.put(&points);
    let uri = format!("/q?{HALF}&m=sum:hostile%7Bhost=*%7D");
    for key in ["out%20center%20top", "out", "top%20left", "out%20center%20bottom%20horiz%20box"] {
        let picture = daemon.picture(&format!("{uri}&key={key}&wxh=300x200&png"));
        assert!(picture.colors() > 10, "{key}");
    }
    let (status, text) = daemon.text(&format!("{uri}&ascii"));
    assert_eq!((status, text.lines().count()), (200, hosts.len()));
    for host in &hosts {
        assert!(text.contains(&format!("hostile {T} 1 host={host}\n")), "{host}");
    }
}

#[test]
fn hostile_names_are_texts_of_json() {
    let special = "`<>\"'\\;$(){}[],:%#&|!";
    let daemon = GraphDaemon::start(&[("tsd.core.tag.allow_specialchars", special)]);
    let hosts = ["\"}],\"x\":[{\"", "</script><script>alert(1)</script>", "\\u0000\\"];
    let points: Vec<String> = hosts.iter().map(|host| point("hostile", T, "1", host)).collect();
    daemon.put(&points);
    let query = format!("/api/query?{HALF}&m=sum:hostile%7Bhost=*%7D");
    for uri in [query.as_str(), "/api/suggest?type=tagv&max=20", "/api/search/lookup?m=hostile"] {
        let (status, json) = daemon.text(uri);
        assert_eq!(status, 200, "{uri}");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let texts = value.to_string();
        for host in hosts {
            let text = serde_json::Value::from(host).to_string();
            assert!(texts.contains(&text), "{uri}: {text} of {texts}");
        }
    }
    let (status, json) = daemon.text(&format!("/q?{HALF}&m=sum:%22%7D%5C&json"));
    let error: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        status == 400 && error["err"].as_str().is_some_and(|text| text.contains("\"}\\")),
        "{json}"
    );
}

#[test]
fn hostile_annotations_are_drawn_as_texts() {
    let daemon = GraphDaemon::start(&[]);
    for (n, text) in
        ["a\u{1b}[2Jb", "line\nline", "\u{202e}reversed", "`id`\";system('id')", "\u{0}"]
            .iter()
            .enumerate()
    {
        let note =
            serde_json::json!({ "startTime": T + 300 * (n as i64 + 1), "description": text });
        let response =
            http(daemon.node().address(), "POST", "/api/annotation", Some(&note.to_string()));
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let uri = format!("/q?{HALF}&m=sum:m&wxh=600x300&global_annotations&png");
    // A line for each, and its text.
    let lines = daemon.picture(&uri).find([0xd6, 0x27, 0x28]);
    let columns: std::collections::BTreeSet<usize> = lines.iter().map(|(x, _)| *x).collect();
    assert!(columns.len() >= 5, "{columns:?}");
}

#[test]
fn hostile_titles_are_refused_or_drawn() {
    let daemon = GraphDaemon::start(&[]);
    let status = |escaped: &str| {
        daemon.get(&format!("/q?{HALF}&m=sum:m&wxh=200x100&title={escaped}&png")).status
    };
    assert_eq!(status("requests/s%20(95%25)"), 200);
    // Hebrew, Arabic, Chinese, a letter with a mark.
    for letters in
        ["\u{5e9}\u{5dc}\u{5d5}\u{5dd}", "\u{633}\u{644}\u{627}\u{645}", "\u{56fe}", "\u{e9}"]
    {
        assert_eq!(status(&encode(letters)), 200, "{letters}");
    }
    let long = "x".repeat(300);
    for escaped in [
        "a%00b",
        "a%1b[2J",
        "a%0d%0ab",
        "%7f",
        "%c2%85",
        "%e2%80%ae",
        "%e2%80%8b",
        "%ff",
        "%c3%28",
        "%f0%9f%92%a9",
        long.as_str(),
    ] {
        assert_eq!(status(escaped), 400, "{escaped}");
    }
    assert_eq!(status("%zz"), 400);
}

#[test]
fn any_parameters_are_answered_or_refused() {
    let daemon = GraphDaemon::start(&[]);
    let name = prop::sample::select(vec![
        "wxh",
        "yrange",
        "y2range",
        "ylabel",
        "y2label",
        "yformat",
        "y2format",
        "xformat",
        "ylog",
        "y2log",
        "key",
        "nokey",
        "title",
        "bgcolor",
        "fgcolor",
        "smooth",
        "style",
        "o",
        "tz",
        "nocache",
        "ignore",
        "ms",
        "no_annotations",
        "global_annotations",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "300x200",
            "100x100",
            "[0:10]",
            "[:]",
            "[10:0]",
            "[1:]",
            "[:-5]",
            "[1e-300:1e300]",
            "%g",
            "%.1s %c",
            "%H:%M",
            "out center top",
            "below box",
            "x102030",
            "transparent",
            "csplines",
            "unique",
            "bezier",
            "points",
            "dots",
            "circles",
            "axis x1y2",
            "UTC",
            "Asia/Kolkata",
        ])
        .prop_map(str::to_owned),
        "[\\[\\]:a-z0-9%+. '\"`;*-]{0,12}",
        any::<String>().prop_map(|text| text.chars().take(12).collect()),
    ];
    let parameters = prop::collection::vec((name, value), 0..6);
    let query = prop::sample::select(vec![
        "m=sum:m",
        "m=sum:m%7Bhost=*%7D",
        "m=avg:1m-max-nan:m",
        "m=sum:rate:m",
        "m=none:m",
    ]);
    let form = prop::sample::select(vec!["png", "png", "json", "ascii", "x"]);
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::default() });
    let result = runner.run(&(query, parameters, form), |(query, parameters, form)| {
        let mut uri = format!("/q?{HALF}&{query}&{form}");
        // A small picture, unless another size is requested.
        uri.push_str("&wxh=160x120");
        for (name, value) in parameters {
            uri = format!("{uri}&{name}={}", encode(&value));
        }
        let response = daemon.get(&uri);
        prop_assert!(matches!(response.status, 200 | 400), "{uri}: {}", response.status);
        if response.status == 200 && form == "png" {
            prop_assert!(response.body.starts_with(b"\x89PNG"), "{uri}");
        }
        Ok(())
    });
    assert!(result.is_ok(), "{result:?}");
}
