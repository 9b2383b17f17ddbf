//! Build information.

use tsd_protocol::BuildInfo;

/// Facts of this build. Release builds set the variables; a plain build has only its version,
/// without a build script that runs git on every compile.
#[must_use]
pub(crate) fn build_facts() -> BuildInfo {
    let revision = option_env!("TSDB_BUILD_REVISION").unwrap_or_default();
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        short_revision: revision.chars().take(7).collect(),
        full_revision: revision.to_owned(),
        repo_status: if revision.is_empty() { "UNKNOWN" } else { "MINT" }.to_owned(),
        built_at_secs: option_env!("TSDB_BUILD_EPOCH_SECS")
            .and_then(|secs| secs.parse().ok())
            .unwrap_or_default(),
        ..BuildInfo::default()
    }
}
