//! Facts of the build for `tsdb version` and `/api/version`.
//!
//! A release build asks git for the revision. Other builds do not: every commit would rebuild this
//! crate and the tests that depend on it. Without git or its directory, as in a tarball, the variable
//! `TSDB_BUILD_REVISION` may give the revision; else it is unknown, and the build goes on.

use std::{
    env,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

#[path = "src/git_revision.rs"]
mod git_revision;

use git_revision::GitRevision;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/git_revision.rs");
    for name in ["TSDB_BUILD_REVISION", "SOURCE_DATE_EPOCH", "PROFILE"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let release = variable("PROFILE").is_some_and(|profile| profile == "release");
    let given = variable("TSDB_BUILD_REVISION");
    let root = variable("CARGO_MANIFEST_DIR").map(|directory| directory + "/../..");
    let git = root
        .filter(|_| release && given.is_none())
        .and_then(|root| GitRevision::read(root.as_ref()));
    let (revision, status) = match (given, git) {
        (Some(given), _) => (given, "MINT"),
        (None, Some(git)) => {
            for file in &git.files {
                println!("cargo::rerun-if-changed={}", file.display());
            }
            (git.revision, if git.modified { "MODIFIED" } else { "MINT" })
        }
        (None, None) => ("unknown".to_owned(), "UNKNOWN"),
    };
    println!("cargo::rustc-env=TSDB_BUILD_REVISION={revision}");
    println!("cargo::rustc-env=TSDB_BUILD_STATUS={status}");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let built_at = variable("SOURCE_DATE_EPOCH").unwrap_or_else(|| now().to_string());
    println!("cargo::rustc-env=TSDB_BUILD_EPOCH_SECS={built_at}");
    println!("cargo::rustc-env=TSDB_BUILD_RUSTC={}", rustc_version().unwrap_or_default());
}

/// `1.95.0` of `rustc 1.95.0 (59807616e 2026-04-14)`.
fn rustc_version() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}
