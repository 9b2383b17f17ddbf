//! Checks the edges between our crates, and the outside crates that each may use.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

use super::sources::files;

/// Allowed dependencies between our crates: direct edges, as Cargo has them. Development
/// dependencies are free.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hbase-rs-protobuf", &[]),
    ("hbase-gss", &[]),
    ("hbase-rs", &["hbase-gss", "hbase-rs-protobuf"]),
    ("tsd-model", &[]),
    ("hbase-fake", &["hbase-rs", "hbase-rs-protobuf"]),
    ("tsd-testkit", &["hbase-rs"]),
    ("cluster", &["hbase-rs"]),
    ("tsd-query", &["tsd-model"]),
    ("tsd-graph", &["tsd-model"]),
    ("tsd-protocol", &["tsd-graph", "tsd-model", "tsd-query"]),
    ("tsd-series-index", &["tsd-model"]),
    ("tsd-storage", &["tsd-model", "tsd-runtime", "tsd-series-index"]),
    ("tsd-files", &["tsd-model", "tsd-storage"]),
    ("tsd-storage-wal", &["tsd-files", "tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-storage-lsm", &["tsd-files", "tsd-model", "tsd-storage"]),
    ("tsd-storage-parts", &["tsd-files", "tsd-model", "tsd-series-index", "tsd-storage"]),
    (
        "tsd-storage-embedded",
        &["tsd-files", "tsd-model", "tsd-storage", "tsd-storage-lsm", "tsd-storage-parts"],
    ),
    ("tsd-cluster", &[]),
    ("tsd-cluster-log", &["hbase-rs", "tsd-cluster", "tsd-storage", "tsd-storage-wal"]),
    ("tsd-tls", &[]),
    ("tsd-cluster-net", &["tsd-cluster", "tsd-model", "tsd-storage", "tsd-tls"]),
    ("tsd-storage-hbase", &["hbase-rs", "tsd-model", "tsd-series-index", "tsd-storage"]),
    ("tsd-runtime", &[]),
    ("tsd-meta", &["tsd-model", "tsd-query", "tsd-storage"]),
    (
        "tsd-read",
        &["tsd-meta", "tsd-model", "tsd-query", "tsd-runtime", "tsd-series-index", "tsd-storage"],
    ),
    (
        "tsd-engine",
        &[
            "tsd-files",
            "tsd-meta",
            "tsd-model",
            "tsd-query",
            "tsd-read",
            "tsd-runtime",
            "tsd-series-index",
            "tsd-storage",
        ],
    ),
    ("tsd-tools", &["tsd-engine", "tsd-meta", "tsd-model", "tsd-query", "tsd-storage"]),
    (
        "tsd-server",
        &["tsd-engine", "tsd-graph", "tsd-meta", "tsd-model", "tsd-protocol", "tsd-tls"],
    ),
    (
        "tsd-cli",
        &[
            "hbase-rs",
            "tsd-cluster",
            "tsd-cluster-log",
            "tsd-cluster-net",
            "tsd-engine",
            "tsd-files",
            "tsd-graph",
            "tsd-meta",
            "tsd-model",
            "tsd-protocol",
            "tsd-query",
            "tsd-server",
            "tsd-storage",
            "tsd-storage-embedded",
            "tsd-storage-hbase",
            "tsd-storage-wal",
            "tsd-tls",
            "tsd-tools",
        ],
    ),
    ("saltern", &["tsd-cli"]),
];

/// Outside crates that only some of ours may use.
const RESERVED: &[(&str, &[&str])] = &[
    ("actix", &["tsd-runtime"]),
    ("prost", &["hbase-fake", "hbase-rs", "hbase-rs-protobuf", "tsd-cluster-net"]),
    ("libloading", &["hbase-gss"]),
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

/// Crates that say `doctest = false` have no code in their documentation that nothing runs.
#[test]
fn code_in_documentation_is_run() {
    for manifest in files(&["toml"]).iter().filter(|file| file.text.contains("doctest = false")) {
        let Some(directory) = manifest.path.strip_suffix("Cargo.toml") else { continue };
        let sources = format!("{directory}src/");
        for file in files(&["rs"]).iter().filter(|file| file.path.starts_with(&sources)) {
            assert_eq!(runnable_blocks(&file.text), 0, "{}", file.path);
        }
    }
    assert_eq!(
        runnable_blocks("//! ```text\n//! a\n//! ```\n    /// ```\n    /// b();\n    /// ```\n"),
        1
    );
}

/// Number of the blocks of code that rustdoc would run.
fn runnable_blocks(source: &str) -> usize {
    let fences = source.lines().filter_map(|line| {
        let text = line.trim_start();
        let text = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"))?;
        text.trim_start().strip_prefix("```")
    });
    // Every other fence ends a block.
    fences.step_by(2).filter(|language| *language != "text").count()
}
