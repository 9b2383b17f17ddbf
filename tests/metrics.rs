//! Checks that `/metrics` follows the exposition format of Prometheus, which rejects a page with
//! one malformed line.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_testkit::{exchange, http, wait_for};

use crate::tsdb;

/// The number of series must not grow with what clients send.
const MAX_SERIES: usize = 1_200;
/// Most series of a daemon that has served only this page. Each histogram has its buckets from the
/// start, so the number of histograms dominates.
const MAX_FRESH_SERIES: usize = 900;

/// The metrics of one name.
#[derive(Debug, Default)]
struct Family {
    helps: Vec<String>,
    types: Vec<String>,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Parses a page; a line out of order fails the test.
fn parse(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with('\n'), "the last line is terminated");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').expect("a keyword");
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "{line}: after the samples");
            match keyword {
                "HELP" => family.helps.push(text.to_owned()),
                "TYPE" => family.types.push(text.to_owned()),
                _ => panic!("{line}: unknown keyword"),
            }
            name.clone_into(&mut current);
        } else {
            let sample = parse_sample(line);
            let family = families.get_mut(&current).expect("a family before its samples");
            let histogram = family.types.first().is_some_and(|kind| kind == "histogram");
            let suffix = sample.name.strip_prefix(current.as_str());
            let known: &[_] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffix.is_some_and(|s| known.contains(&s)), "{line}: under {current}");
            family.samples.push(sample);
        }
    }
    families
}

fn parse_sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("an end of labels")),
        None => (series, ""),
    };
    let mut parsed = BTreeMap::new();
    // All label values are from fixed lists without commas and characters that need an escape.
    for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
        let (label, quoted) = pair.split_once('=').expect("a value of the label");
        let value = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).expect("quotes");
        assert!(!value.is_empty() && !value.contains(['"', '\\', '\n']), "{line}");
        assert!(is_name(label) && !label.contains(':') && !label.starts_with("__"), "{line}");
        assert!(parsed.insert(label.to_owned(), value.to_owned()).is_none(), "{line}: twice");
    }
    let value = value.parse().expect("a number");
    Sample { name: name.to_owned(), labels: parsed, value }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Buckets of each series ascend to `+Inf`, which is the count.
fn check_histogram(name: &str, family: &Family) {
    let mut series: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le");
        assert_eq!(bound.is_some(), sample.name.ends_with("_bucket"), "{sample:?}");
        series.entry(labels).or_default().push(sample);
    }
    for (labels, samples) in series {
        let one = |suffix: &str| {
            let mut of = samples.iter().filter(|s| s.name.ends_with(suffix));
            let value = of.next().expect(suffix).value;
            assert!(of.next().is_none(), "{name}{suffix} {labels:?}: twice");
            value
        };
        let (count, _) = (one("_count"), one("_sum"));
        let buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|s| Some((s.labels.get("le")?.parse().expect("a bound"), s.value)))
            .collect();
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{name} {labels:?}: {buckets:?}"
        );
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name} {labels:?}");
    }
}

fn check(name: &str, family: &Family) {
    assert!(is_name(name), "{name}");
    assert!(matches!(&family.helps[..], [help] if !help.is_empty()), "{name}: {:?}", family.helps);
    let [kind] = &family.types[..] else { panic!("{name}: {:?}", family.types) };
    assert!(!family.samples.is_empty(), "{name} has no samples");
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    match kind.as_str() {
        "counter" => {
            assert!(family.samples.iter().all(|s| s.value >= 0.0), "{name}: {family:?}");
        }
        "gauge" => {
            let reserved = ["_bucket", "_sum", "_count"];
            assert!(!reserved.iter().any(|suffix| name.ends_with(suffix)), "{name}");
        }
        "histogram" => check_histogram(name, family),
        _ => panic!("{name} is a {kind}"),
    }
}

#[test]
fn metrics_are_a_valid_exposition() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let address = daemon.address();
    let _ =
        exchange(address, b"put telnet.metric 1600000000 1 host=a\nput telnet.metric\nnonsense\n");
    let points: Vec<_> = (0..100)
        .map(|n| {
            format!(
                r#"{{"metric":"m{n}","timestamp":{},"value":{n},"tags":{{"host":"h{n}"}}}}"#,
                1_600_000_000 + n
            )
        })
        .collect();
    let body = format!("[{}]", points.join(","));
    assert_eq!(http(address, "POST", "/api/put", Some(&body)).status, 204);
    let query = "/api/query?start=1599999990&end=1600000200&m=sum:m7%7Bhost=*%7D";
    assert_eq!(http(address, "GET", query, None).status, 200);
    assert_eq!(http(address, "GET", "/no/such/route%22", None).status, 404);
    let _ = http(address, "GET", "/metrics", None);

    let page = http(address, "GET", "/metrics", None);
    assert_eq!(page.status, 200);
    let families = parse(&page.body);
    for (name, family) in &families {
        check(name, family);
    }
    let samples: Vec<_> = families.values().flat_map(|family| &family.samples).collect();
    let distinct: BTreeSet<_> = samples.iter().map(|s| (&s.name, &s.labels)).collect();
    assert_eq!(distinct.len(), samples.len(), "each series appears once");
    assert!(samples.len() < MAX_SERIES, "{} series", samples.len());
    // Every layer publishes its metrics and counts.
    for (name, least) in [
        ("tsd_server_requests_total", 4.0),
        ("tsd_ingest_points_received_total", 100.0),
        ("tsd_write_points_stored_total", 100.0),
        ("tsd_uid_assigned_total", 200.0),
        ("tsd_storage_calls_total", 1.0),
        ("tsd_wal_commits_total", 1.0),
        ("tsd_wal_memtable_limit_bytes", 1.0),
        ("tsd_lsm_cache_capacity_bytes", 1.0),
    ] {
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        let sum: f64 = family.samples.iter().map(|s| s.value).sum();
        assert!(sum >= least, "{name}: {sum}");
    }
    assert!(daemon.terminate().success());
}

#[test]
fn a_fresh_daemon_exposes_its_process_its_build_and_few_series() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let page = || parse(&http(daemon.address(), "GET", "/metrics", None).body);
    let families = page();
    let series: usize = families.values().map(|family| family.samples.len()).sum();
    assert!(series < MAX_FRESH_SERIES, "{series} series");

    let value = |families: &BTreeMap<String, Family>, name: &str| {
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.samples.len(), 1, "{name}");
        family.samples[0].value
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    let start = value(&families, "process_start_time_seconds");
    assert!(start > now - 600.0 && start <= now, "{start}");
    assert!(value(&families, "process_resident_memory_bytes") > 1e6);
    assert!(
        value(&families, "process_virtual_memory_bytes")
            >= value(&families, "process_resident_memory_bytes")
    );
    assert!(
        value(&families, "process_open_fds") > 5.0
            && value(&families, "process_open_fds") < value(&families, "process_max_fds")
    );
    let cpu = value(&families, "process_cpu_seconds_total");
    assert!(cpu > 0.0 && value(&page(), "process_cpu_seconds_total") > cpu);

    let build = &families["tsd_build_info"].samples[0];
    assert!((build.value - 1.0).abs() < f64::EPSILON);
    assert_eq!(build.labels["version"], env!("CARGO_PKG_VERSION"));
    assert!(build.labels["rustc"].starts_with("1."), "{build:?}");
    assert!(build.labels.contains_key("revision"), "{build:?}");
    assert!(daemon.terminate().success());
}

#[test]
fn a_daemon_stores_its_own_statistics_if_asked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path())
        .env("TSD_STATS_SELF", "1")
        .env("TSD_CORE_AUTO_CREATE_METRICS", "false")
        .start();
    let address = daemon.address();
    let uri = "/api/query?start=1h-ago&m=sum:tsd.connectionmgr.connections{type=total,host=*}";
    let points = || {
        let answer = http(address, "GET", uri, None);
        let points = answer.body.split("\"dps\":{").nth(1)?.matches(':').count();
        (answer.status == 200 && points >= 2).then_some(answer.body)
    };
    let body = wait_for(points).expect("two points of a statistic");
    assert!(body.contains(r#""host":"#), "{body}");
    let page = http(address, "GET", "/metrics", None).body;
    assert!(page.contains("\ntsd_server_self_stats_failed_total 0\n"), "{page}");
    assert!(daemon.terminate().success());
}
