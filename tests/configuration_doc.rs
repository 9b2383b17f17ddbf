//! Generates `docs/configuration-reference.md` from the rows of the configuration keys.
//!
//! `UPDATE_DOCS=1 cargo test --test main configuration_doc` writes the page.

use std::{collections::BTreeMap, fmt::Write, fs};

use tsd_cli::config::keys::{KEYS, Key, KeyEffect, Scope};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration-reference.md");

const HEADER: &str = "# Configuration reference

Every key with its default, its values and the stores on which it has an effect. [Configuration](configuration.md) says where values come from,
and how to check a file. `tsdb config list` prints the same rows for the installed version.

| store | the key has an effect on |
|---|---|
| all | every store |
| embedded | the embedded store |
| HBase | HBase; keys of a log need `tsd.storage.ack = log` or `cluster` |
| cluster | HBase with `tsd.storage.ack = cluster` |
| memory | the store in memory, for tests |

This page is generated from the rows of the keys: `UPDATE_DOCS=1 cargo test --test main configuration_doc`.
";

/// Groups of fewer keys share the last section.
const MIN_GROUP: usize = 3;

/// Prefix of the section of a key: two words, or three for the keys of HBase below `tsd.storage`.
fn prefix(name: &str) -> &str {
    const HBASE: &str = "tsd.storage.hbase.";
    if name.starts_with(HBASE) {
        return HBASE;
    }
    let words = if name.starts_with("tsd.") { 2 } else { 1 };
    let length = name.match_indices('.').nth(words - 1).map_or(name.len(), |(at, _)| at + 1);
    &name[..length]
}

/// Applied keys with their scopes.
type Keys = Vec<(&'static Key, Scope)>;

/// Applied keys by prefix, and the keys of small groups.
fn groups() -> (BTreeMap<&'static str, Keys>, Keys) {
    let mut groups: BTreeMap<_, Keys> = BTreeMap::new();
    for key in KEYS {
        if let KeyEffect::Applied(scope) = key.effect {
            groups.entry(prefix(key.name)).or_default().push((key, scope));
        }
    }
    let others = groups.extract_if(.., |_, keys| keys.len() < MIN_GROUP).flat_map(|(_, keys)| keys);
    let others = others.collect();
    (groups, others)
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

fn section(page: &mut String, title: &str, keys: &[(&Key, Scope)]) {
    let _ = write!(
        page,
        "\n## {title}\n\n| key | default | values | store | meaning |\n|---|---|---|---|---|\n"
    );
    for (key, scope) in keys {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            key.name,
            code(key.default.unwrap_or_default()),
            cell(&key.values()),
            scope.text(),
            cell(key.meaning)
        );
    }
}

fn render() -> String {
    let mut page = HEADER.to_owned();
    let (groups, others) = groups();
    for (prefix, keys) in &groups {
        section(&mut page, &format!("`{prefix}*`"), keys);
    }
    section(&mut page, "Other keys", &others);
    page.push_str(
        "\n## Keys of OpenTSDB without an effect\n\n\
         These keys are accepted and shown, and change nothing.\n\n\
         | key | meaning | why it has no effect |\n|---|---|---|\n",
    );
    for key in KEYS {
        if let KeyEffect::None(reason) = key.effect {
            let _ = writeln!(page, "| `{}` | {} | {} |", key.name, cell(key.meaning), cell(reason));
        }
    }
    page
}

#[test]
fn reference_page_matches_the_keys() {
    let page = render();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &page).expect("docs/configuration-reference.md is writable");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    for (line, expected) in written.lines().zip(page.lines()) {
        assert_eq!(
            line, expected,
            "docs/configuration-reference.md is outdated: set UPDATE_DOCS=1"
        );
    }
    assert_eq!(written, page, "docs/configuration-reference.md is outdated: set UPDATE_DOCS=1");
}

#[test]
fn every_key_is_on_the_page_once() {
    let page = render();
    for key in KEYS {
        let rows = page.matches(&format!("\n| `{}` |", key.name)).count();
        assert_eq!(rows, 1, "{}", key.name);
    }
}
