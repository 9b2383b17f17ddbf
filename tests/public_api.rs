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
