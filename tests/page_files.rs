//! Checks the files of the web page: how they are served, their references, and their size. `tests/page.sh` drives the page in a
//! browser.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::SocketAddr,
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use tsd_testkit::connect;

use crate::tsdb;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/tsd-server/page");

/// Most compressed bytes of all files together.
const BUDGET: usize = 250 << 10;

/// Names and contents of the files.
fn files() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(FOLDER).expect("the folder of the page");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

fn sources() -> impl Iterator<Item = (String, String)> {
    files().into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).expect("text")))
}

/// Sends a request and returns the head of the response and its body.
fn send(address: SocketAddr, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut stream = connect(address);
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("a response");
    let end = received.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let body = received.split_off(end);
    (String::from_utf8(received).expect("text").to_ascii_lowercase(), body)
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn path_of(name: &str) -> String {
    if name == "index.html" { "/".to_owned() } else { format!("/s/page/{name}") }
}

#[test]
fn files_of_the_page_are_served_as_they_are_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    for (name, bytes) in files() {
        let path = path_of(&name);
        let (head, body) = send(daemon.address(), "GET", &path, "");
        assert_eq!(status(&head), "200", "{path}");
        assert!(body == bytes, "{path}");
        let extension = Path::new(&name).extension().and_then(|e| e.to_str());
        let expected = match extension {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(header(&head, "content-type"), Some(expected), "{path}");
        assert_eq!(header(&head, "x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(header(&head, "cache-control"), Some("no-cache"), "{path}");
        let policy = header(&head, "content-security-policy").expect("a policy");
        for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");

        let (only_head, no_body) = send(daemon.address(), "HEAD", &path, "");
        assert_eq!((status(&only_head), no_body.len()), ("200", 0), "{path}");
        assert_eq!(header(&only_head, "etag"), header(&head, "etag"), "{path}");

        let tag = header(&head, "etag").expect("an entity tag");
        // Its prefix is compared in upper case.
        let tag = tag.replacen("w/", "W/", 1);
        let (same, nothing) =
            send(daemon.address(), "GET", &path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((status(&same), nothing.len()), ("304", 0), "{path}: {same}");
        let (other, _) = send(daemon.address(), "GET", &path, "If-None-Match: \"other\"\r\n");
        assert_eq!(status(&other), "200", "{path}");

        let (packed, fewer) = send(daemon.address(), "GET", &path, "Accept-Encoding: gzip\r\n");
        if bytes.len() > 1_000 {
            assert_eq!(header(&packed, "content-encoding"), Some("gzip"), "{path}");
            assert!(fewer.len() < bytes.len(), "{path}");
        }
        let (refused, _) = send(daemon.address(), "POST", &path, "Content-Length: 0\r\n");
        assert_eq!(status(&refused), "400", "{path}");
    }
    for path in ["/s/page/nothing.js", "/s/page/", "/s/page"] {
        let (head, _) = send(daemon.address(), "GET", path, "");
        assert_eq!(status(&head), "404", "{path}");
    }
    assert!(daemon.terminate().success());
}

#[test]
fn page_is_off_without_the_ui() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = dir.path().join("opentsdb.conf");
    fs::write(&config, "tsd.core.enable_ui = false\n").expect("write");
    let config = config.to_str().expect("a path");
    let daemon = tsdb(&dir.path().join("data")).args(&["--config", config]).start();
    for path in ["/", "/s/page/main.js"] {
        let (head, _) = send(daemon.address(), "GET", path, "");
        assert_eq!(status(&head), "404", "{path}");
    }
    let (_, body) = send(daemon.address(), "GET", "/api/config/sources", "");
    let body = String::from_utf8_lossy(&body);
    let source = format!(r#""tsd.core.enable_ui":"{config} line 1""#);
    assert!(body.contains(&source) && body.contains(r#""tsd.mode":"default""#), "{body}");
    assert!(daemon.terminate().success());
}

#[test]
fn all_files_together_are_small() {
    let mut sum = 0;
    for (_, bytes) in files() {
        // As the daemon compresses them.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(3));
        encoder.write_all(&bytes).expect("compress");
        sum += encoder.finish().expect("compress").len();
    }
    assert!(sum <= BUDGET, "{sum} bytes");
}

#[test]
fn files_that_are_referred_to_exist() {
    let present: BTreeSet<String> = files().into_iter().map(|(name, _)| name).collect();
    let mut wrong = Vec::new();
    let mut references = 0;
    for (name, text) in sources() {
        let absolute = text.split("\"/s/page/").skip(1);
        let relative = text.split("from \"./").skip(1);
        let types = text.split("import(\"./").skip(1);
        for rest in absolute.chain(relative).chain(types) {
            let target = rest.split('"').next().unwrap_or_default();
            references += 1;
            if !present.contains(target) {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(references > present.len(), "{references} references");
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn nothing_parses_markup_or_code_or_loads_from_elsewhere() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "srcdoc",
            "eval(",
            "new Function",
            "setTimeout(\"",
            "javascript:",
            " style=",
            " onclick=",
            "<script>",
            "//cdn",
        ] {
            if text.contains(word) {
                wrong.push(format!("{name}: {word}"));
            }
        }
        for scheme in ["http://", "https://", "ws://"] {
            for rest in text.split(scheme).skip(1) {
                // Names of namespaces are not addresses.
                if !rest.starts_with("www.w3.org/2000/svg") {
                    wrong.push(format!("{name}: {scheme}{}", rest.get(..20).unwrap_or(rest)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Issue 37: browsers leave these out over plain HTTP.
#[test]
fn functions_of_secure_contexts_have_a_fallback() {
    let words =
        ["navigator.clipboard", "navigator.share", "randomUUID", "crypto.subtle", "serviceWorker"];
    let found = used(&words, "dom.js");
    assert!(found.is_empty(), "use copyText of dom.js: {found:?}");
}

/// Issue 37: a time in the zone of the browser, or without a zone, is another one to a colleague.
#[test]
fn times_are_written_in_one_place() {
    let words = [
        "toISOString",
        "toLocaleTime",
        "toLocaleDate",
        "getHours",
        "getDate(",
        "toUTCString",
        "localZone",
    ];
    let found: Vec<String> = used(&words, "time.js")
        .into_iter()
        // These functions choose the zone of the page.
        .filter(|found| !["zone.js: localZone", "main.js: localZone"].contains(&found.as_str()))
        .collect();
    assert!(found.is_empty(), "use functions of time.js with the page's zone: {found:?}");
}

/// Files with these words, which only one file may have.
fn used(words: &[&str], allowed: &str) -> Vec<String> {
    sources()
        .filter(|(name, _)| name != allowed)
        .flat_map(|(name, text)| {
            let found = words.iter().filter(|word| text.contains(**word));
            found.map(|word| format!("{name}: {word}")).collect::<Vec<_>>()
        })
        .collect()
}
