//! Generates `docs/metrics.md` from the metric descriptions in the code, and checks that the names follow the rules of Prometheus.
//!
//! `UPDATE_DOCS=1 cargo test --test main metrics_doc` writes the page.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use ::metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use tsd_testkit::http;

use crate::tsdb;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");

/// Every crate that publishes metrics.
const CRATES: [(&str, fn()); 9] = [
    ("tsd-server", tsd_server::describe_metrics),
    ("tsd-engine", tsd_engine::describe_metrics),
    ("tsd-storage", tsd_storage::describe_metrics),
    ("tsd-storage-wal", tsd_storage_wal::describe_metrics),
    ("tsd-storage-lsm", tsd_storage_lsm::describe_metrics),
    ("tsd-storage-parts", tsd_storage_parts::describe_metrics),
    ("tsd-storage-hbase", tsd_storage_hbase::describe_metrics),
    ("tsd-cluster-log", tsd_cluster_log::describe_metrics),
    ("tsd-cluster-net", tsd_cluster_net::describe_metrics),
];

/// The crate whose metrics the engine describes together with its own.
const READS: &str = "tsd-read";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Description {
    kind: &'static str,
    unit: Option<Unit>,
    text: String,
}

/// Keeps descriptions and ignores values.
#[derive(Default)]
struct DescriptionRecorder {
    descriptions: Mutex<BTreeMap<String, Description>>,
}

impl DescriptionRecorder {
    fn record(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let description = Description { kind, unit, text: text.to_string() };
        let mut descriptions = self.descriptions.lock();
        let earlier = descriptions.insert(name.as_str().to_owned(), description.clone());
        assert!(
            earlier.is_none_or(|earlier| earlier == description),
            "{} has two descriptions",
            name.as_str()
        );
    }
}

impl Recorder for DescriptionRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.record("counter", &name, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.record("gauge", &name, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.record("histogram", &name, unit, &text);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Descriptions by crate and name.
fn descriptions() -> Vec<(&'static str, BTreeMap<String, Description>)> {
    CRATES
        .iter()
        .map(|(name, describe)| {
            let recorder = DescriptionRecorder::default();
            with_local_recorder(&recorder, *describe);
            (*name, recorder.descriptions.into_inner())
        })
        .collect()
}

/// Prefix of a name: `tsd_wal_` of `tsd_wal_commits_total`, `tsd_cluster_log_` of `tsd_cluster_log_fenced`, and `process_`, which
/// Prometheus' clients use for metrics of the process.
fn prefix(name: &str) -> &str {
    if name.starts_with("process_") {
        return "process_";
    }
    let first = if name.starts_with("tsd_cluster_") { "tsd_cluster_" } else { "tsd_" };
    let subsystem = name.strip_prefix(first).unwrap_or_default();
    let length = subsystem.find('_').unwrap_or_default();
    &name[..=first.len() + length]
}

/// The final word of a name, before the `total` of a counter.
fn last_word(name: &str) -> &str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    name.rsplit('_').next().unwrap_or(name)
}

/// The unit by the end of the name, as Prometheus has it.
fn unit(name: &str) -> &'static str {
    match last_word(name) {
        "seconds" => "seconds",
        "bytes" => "bytes",
        "ratio" => "ratio",
        _ => "",
    }
}

fn render() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `/metrics` exposes these metrics in the text format of Prometheus. A daemon has those of its \
         storage backend\nand of its `tsd.storage.ack` mode. A histogram has the series `_bucket`, \
         `_sum` and `_count`.\n\n\
         This page is generated from the descriptions in the code: \
         `UPDATE_DOCS=1 cargo test --test main metrics_doc`.\n",
    );
    for (name, descriptions) in descriptions() {
        let mut current = "";
        for (metric, description) in &descriptions {
            if prefix(metric) != current {
                current = prefix(metric);
                let _ = write!(
                    page,
                    "\n## `{current}*` ({name})\n\n\
                     | name | type | unit | description |\n|---|---|---|---|\n"
                );
            }
            let Description { kind, text, .. } = description;
            let text = text.replace('|', "\\|");
            let _ = writeln!(page, "| `{metric}` | {kind} | {} | {text} |", unit(metric));
        }
    }
    page
}

#[test]
fn metrics_page_matches_the_code() {
    let page = render();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &page).expect("docs/metrics.md is writable");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    for (line, expected) in written.lines().zip(page.lines()) {
        assert_eq!(line, expected, "docs/metrics.md is outdated: set UPDATE_DOCS=1");
    }
    assert_eq!(written, page, "docs/metrics.md is outdated: set UPDATE_DOCS=1");
}

#[test]
fn metric_names_follow_the_rules() {
    let mut wrong = Vec::new();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for (package, descriptions) in descriptions() {
        assert!(!descriptions.is_empty(), "{package} describes no metric");
        let prefixes: BTreeSet<_> = descriptions.keys().map(|name| prefix(name)).collect();
        for prefix in prefixes {
            if let Some(other) = owners.insert(prefix.to_owned(), package) {
                wrong.push(format!("{prefix} is described by {other} and {package}"));
            }
        }
        for (name, Description { kind, unit: declared, text }) in &descriptions {
            let mut check = |holds: bool, rule: &str| {
                if !holds {
                    wrong.push(format!("{name} {rule}"));
                }
            };
            let snake_case = name.split('_').all(|word| {
                !word.is_empty()
                    && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            });
            let prefixed = name.starts_with("tsd_") || name.starts_with("process_");
            check(prefixed && snake_case, "is not tsd_ and snake_case");
            let is_counter = *kind == "counter";
            check(is_counter == name.ends_with("_total"), "ends in _total or is no counter");
            for word in ["milliseconds", "millis", "ms", "micros", "nanos", "kb", "mb"] {
                check(name.split('_').all(|part| part != word), "has no base unit");
            }
            let expected = match declared {
                Some(Unit::Seconds) => Some("seconds"),
                Some(Unit::Bytes) => Some("bytes"),
                Some(Unit::Count | Unit::Percent) | None => None,
                Some(other) => {
                    check(false, &format!("is in {}", other.as_str()));
                    None
                }
            };
            check(expected.is_none_or(|unit| last_word(name) == unit), "does not end in its unit");
            for unit in ["seconds", "bytes"] {
                let inside = name.split('_').any(|part| part == unit);
                check(!inside || last_word(name) == unit, "has its unit not at the end");
            }
            check(!text.trim().is_empty(), "has no description");
            check(!text.contains('\n'), "has a description of several lines");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Metric names in the sources of a directory and below it.
fn names_in_sources(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            names_in_sources(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("a source file");
            let literals = source.split('"').filter(|text| {
                text.starts_with("tsd_")
                    && !text.ends_with('_')
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
            names.extend(literals.map(str::to_owned));
        }
    }
}

#[test]
fn metrics_in_the_sources_are_described() {
    let mut described = BTreeSet::new();
    let mut used = BTreeSet::new();
    let mut packages = vec![READS];
    for (package, descriptions) in descriptions() {
        described.extend(descriptions.into_keys());
        packages.push(package);
    }
    for package in packages {
        let source = format!("{}/crates/{package}/src", env!("CARGO_MANIFEST_DIR"));
        names_in_sources(Path::new(&source), &mut used);
    }
    let missing: Vec<_> = used.difference(&described).collect();
    assert!(missing.is_empty(), "without a description: {missing:?}");
}

#[test]
fn exposed_metrics_are_documented() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let address = daemon.address();
    let point = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(address, "POST", "/api/put", Some(point)).status, 204);
    let query = "/api/query?start=1599999990&end=1600000200&m=sum:m";
    assert_eq!(http(address, "GET", query, None).status, 200);
    let exposition = http(address, "GET", "/metrics", None).body;
    assert!(daemon.terminate().success());

    let page = fs::read_to_string(Path::new(PAGE)).expect("docs/metrics.md");
    let families: Vec<(&str, &str)> = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| name.starts_with("tsd_") || name.starts_with("process_"))
        .collect();
    assert!(families.len() > 100, "{} families", families.len());
    let missing: Vec<_> = families
        .iter()
        .filter(|(name, kind)| !page.contains(&format!("\n| `{name}` | {kind} |")))
        .collect();
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
}
