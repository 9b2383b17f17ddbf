//! Checks that the public API of `hbase-rs` equals the API of its last release,
//! `crates/hbase-rs/public-api.txt`.
//!
//! ```text
//! tests/public_api.sh                    fails with the items that differ
//! UPDATE_DOCS=1 tests/public_api.sh      takes the API as it is
//! ```

#![expect(clippy::expect_used, reason = "tests")]

use std::{collections::BTreeSet, env, fs, process::ExitCode};

use public_api::Builder;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/hbase-rs/public-api.txt");

/// Crates whose types every program of the field knows, and the standard library.
const KNOWN: &[&str] = &["alloc", "bytes", "core", "futures_core", "hbase_rs", "std", "tokio"];

/// True if a path of the item begins with another crate.
fn names_foreign_type(item: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    item.split(|c| !is_path(c)).any(|path| {
        path.split_once("::").is_some_and(|(root, _)| {
            root.starts_with(|c: char| c.is_ascii_lowercase()) && !KNOWN.contains(&root)
        })
    })
}

fn main() -> ExitCode {
    // `cargo test` gives no argument, or a filter.
    let Some(documentation) = env::args().nth(1).filter(|word| word.contains(".json")) else {
        println!("public_api: left out; tests/public_api.sh runs it");
        return ExitCode::SUCCESS;
    };
    let api = Builder::from_rustdoc_json(documentation)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("the API");
    let found = api.to_string();
    let foreign: Vec<&str> = found.lines().filter(|item| names_foreign_type(item)).collect();
    if !foreign.is_empty() {
        println!("public_api: types of other crates:\n{}", foreign.join("\n"));
        return ExitCode::FAILURE;
    }
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(RECORDED, found).expect("write");
        return ExitCode::SUCCESS;
    }
    let recorded = fs::read_to_string(RECORDED).expect("the recorded API");
    let items = |text: &'_ str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (recorded, found) = (items(&recorded), items(&found));
    for item in recorded.difference(&found) {
        println!("public_api: removed: {item}");
    }
    for item in found.difference(&recorded) {
        println!("public_api: added: {item}");
    }
    if recorded == found {
        println!("public_api: {} items, as recorded", found.len());
        return ExitCode::SUCCESS;
    }
    println!(
        "public_api: UPDATE_DOCS=1 tests/public_api.sh records the API; a removed item needs a new version"
    );
    ExitCode::FAILURE
}
