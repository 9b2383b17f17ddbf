//! Checks crates from the registry: licences that may be shipped under Apache-2.0, no banned crate,
//! no second version of a crate without a reason.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{
    CargoOpt, DepKindInfo, DependencyKind, Metadata, MetadataCommand, Node, PackageId,
};

/// Licences that a crate may be under.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Banned crates, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("fjall", "its journal poisons the store when the disk is full (docs/decisions/005)"),
    ("openssl-sys", "a bare machine builds and runs the daemon"),
    ("native-tls", "a bare machine builds and runs the daemon"),
    ("protobuf", "messages are prost's"),
    ("chrono", "times and zones are jiff's"),
];

/// Crates that the daemon has in several versions, with the number of versions. Each is required by
/// crates that do not support the newest version. A new entry needs the same reason; an outdated
/// entry must be removed.
const SEVERAL_VERSIONS: &[(&str, usize)] = &[
    ("ahash", 2),
    ("getrandom", 3),
    ("hashbrown", 4),
    ("heck", 2),
    ("rand_core", 2),
    ("syn", 3),
    ("thiserror", 2),
    ("thiserror-impl", 2),
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .features(CargoOpt::AllFeatures)
        .other_options(
            ["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(String::from),
        )
        .exec()
        .expect("cargo metadata")
}

#[test]
fn licences_allow_shipping() {
    let metadata = metadata();
    let own: BTreeSet<&PackageId> = metadata.workspace_members.iter().collect();
    let mut wrong = Vec::new();
    for package in metadata.packages.iter().filter(|package| !own.contains(&package.id)) {
        let licence = package.license.as_deref().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.push(format!("{} {}: {licence}", package.name, package.version));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn banned_crates_stay_out() {
    let metadata = metadata();
    let found: Vec<String> = metadata
        .packages
        .iter()
        .filter_map(|package| {
            let (name, why) = BANNED.iter().find(|(name, _)| *name == package.name.as_str())?;
            Some(format!("{name}: {why}"))
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_daemon_has_one_version_of_each_crate() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let shipped = shipped(&metadata);
    for package in metadata.packages.iter().filter(|package| shipped.contains(&package.id)) {
        versions.entry(package.name.as_str()).or_default().insert(package.version.to_string());
    }
    let several: Vec<(&str, usize)> = versions
        .iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| (*name, versions.len()))
        .collect();
    assert_eq!(several, SEVERAL_VERSIONS, "{versions:?}");
}

/// Packages that end up in the binary: reached from the root without development and build dependencies.
fn shipped(metadata: &Metadata) -> BTreeSet<&PackageId> {
    let nodes: BTreeMap<&PackageId, &Node> = metadata
        .resolve
        .as_ref()
        .expect("a resolved graph")
        .nodes
        .iter()
        .map(|node| (&node.id, node))
        .collect();
    let mut open = vec![&metadata.root_package().expect("a root package").id];
    let mut found = BTreeSet::new();
    let is_normal =
        |kinds: &[DepKindInfo]| kinds.iter().any(|is| is.kind == DependencyKind::Normal);
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let dependencies = nodes.get(id).map_or(&[][..], |node| &node.deps[..]);
            open.extend(
                dependencies.iter().filter(|on| is_normal(&on.dep_kinds)).map(|on| &on.pkg),
            );
        }
    }
    found
}

/// True if the SPDX expression can be met with [`LICENCES`] alone.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace(" / ", " OR ").replace('/', " OR ");
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    any_of(&mut words) && words.is_empty()
}

fn any_of(words: &mut &[&str]) -> bool {
    let mut allowed = all_of(words);
    while let Some(("OR", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        *words = rest;
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut &[&str]) -> bool {
    let mut allowed = one(words);
    while let Some(("AND", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        *words = rest;
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut &[&str]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    *words = rest;
    if *first == "(" {
        let allowed = any_of(words);
        let Some((&")", rest)) = words.split_first() else { return false };
        *words = rest;
        return allowed;
    }
    // An exception only adds permissions.
    if let [with, _, rest @ ..] = *words
        && *with == "WITH"
    {
        *words = rest;
    }
    LICENCES.contains(first)
}

#[test]
fn expressions_are_evaluated() {
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-2.0-only", false),
        ("Apache-2.0 OR GPL-2.0-only", true),
        ("MIT AND GPL-2.0-only", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("(MIT", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}
