//! Edges between our crates, and which of them may know which crate from outside.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Which of our crates each of our crates may build on. Cargo's own direct edges; a crate may use
/// what it names here and nothing else. Development dependencies are free.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hbase-rs-protobuf", &[]),
    ("hbase-rs", &["hbase-rs-protobuf"]),
    ("tsd-model", &[]),
    ("hbase-fake", &["hbase-rs", "hbase-rs-protobuf"]),
    ("tsd-testkit", &["hbase-rs"]),
    ("cluster", &["hbase-rs"]),
    ("tsd-query", &["tsd-model"]),
    ("tsd-graph", &["tsd-model"]),
    ("tsd-protocol", &["tsd-graph", "tsd-model", "tsd-query"]),
    ("tsd-series-index", &["tsd-model"]),
    ("tsd-storage", &["tsd-model", "tsd-series-index"]),
    ("tsd-storage-wal", &["tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-storage-lsm", &["tsd-model", "tsd-storage"]),
    ("tsd-storage-parts", &["tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-storage-embedded", &["tsd-model", "tsd-storage", "tsd-storage-lsm", "tsd-storage-parts"]),
    ("tsd-cluster", &[]),
    ("tsd-cluster-log", &["hbase-rs", "tsd-cluster", "tsd-storage", "tsd-storage-wal"]),
    ("tsd-cluster-net", &["tsd-cluster", "tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-storage-hbase", &["hbase-rs", "tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-engine", &["tsd-model", "tsd-query", "tsd-series-index", "tsd-storage"]),
    ("tsd-server", &["tsd-engine", "tsd-graph", "tsd-model", "tsd-protocol"]),
    (
        "tsd-cli",
        &[
            "hbase-rs",
            "tsd-cluster",
            "tsd-cluster-log",
            "tsd-cluster-net",
            "tsd-engine",
            "tsd-graph",
            "tsd-model",
            "tsd-protocol",
            "tsd-query",
            "tsd-server",
            "tsd-storage",
            "tsd-storage-embedded",
            "tsd-storage-hbase",
            "tsd-storage-wal",
        ],
    ),
    ("saltern", &["tsd-cli"]),
];

/// Crates from outside that only some of ours may know.
const RESERVED: &[(&str, &[&str])] = &[
    ("actix", &["tsd-engine"]),
    ("prost", &["hbase-fake", "hbase-rs", "hbase-rs-protobuf", "tsd-cluster-net"]),
    ("lsm-tree", &["tsd-storage-lsm"]),
    ("roaring", &["tsd-series-index"]),
    ("tiny-skia", &["tsd-graph"]),
    ("ttf-parser", &["tsd-graph"]),
    ("hyper", &["tsd-cli", "tsd-server"]),
    ("clap", &["cluster", "tsd-cli"]),
    ("anyhow", &["cluster", "tsd-cli"]),
];

/// Pure crates: no sockets, no files, no clock of their own.
const PURE: &[&str] = &[
    "tsd-model",
    "tsd-query",
    "tsd-graph",
    "tsd-protocol",
    "tsd-series-index",
    "tsd-cluster",
    "hbase-rs-protobuf",
];
const IMPURE: &[&str] = &["tokio", "actix", "hyper", "fjall", "socket2", "fs4", "tracing"];

#[test]
fn crates_build_only_on_what_the_table_allows() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, on)| (*name, on.iter().copied().collect())).collect();
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata");
    let mut wrong = Vec::new();
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(on) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table"));
            continue;
        };
        for dependency in &package.dependencies {
            let other = dependency.name.as_str();
            if dependency.kind == DependencyKind::Development {
                continue;
            }
            if on.contains(other) {
                used.insert((name, other));
            } else if allowed.contains_key(other) {
                wrong.push(format!("{name} may not build on {other}"));
            }
            let reserved = RESERVED.iter().find(|(outside, _)| *outside == other);
            if reserved.is_some_and(|(_, by)| !by.contains(&name)) {
                wrong.push(format!("{name} may not know {other}"));
            }
            if PURE.contains(&name) && IMPURE.contains(&other) {
                wrong.push(format!("{name} does no I/O and may not know {other}"));
            }
        }
    }
    for (name, on) in ALLOWED {
        let unused = on.iter().filter(|other| !used.contains(&(*name, **other)));
        wrong.extend(unused.map(|other| format!("the table allows {name} → {other}: not used")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
