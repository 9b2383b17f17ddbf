//! Build information, collected by the build script.

use tsd_protocol::BuildInfo;

/// Facts of this build.
#[must_use]
pub(crate) fn build_facts() -> BuildInfo {
    let revision = env!("TSDB_BUILD_REVISION");
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        short_revision: revision.chars().take(7).collect(),
        full_revision: revision.to_owned(),
        repo_status: env!("TSDB_BUILD_STATUS").to_owned(),
        built_at_secs: env!("TSDB_BUILD_EPOCH_SECS").parse().unwrap_or_default(),
        rustc: env!("TSDB_BUILD_RUSTC").to_owned(),
        ..BuildInfo::default()
    }
}

/// `Saltern 0.1.0, revision abcdef0 (MINT), rustc 1.95.0`
pub(crate) fn line() -> String {
    let BuildInfo { version, short_revision, repo_status, rustc, .. } = build_facts();
    format!("Saltern {version}, revision {short_revision} ({repo_status}), rustc {rustc}")
}

/// The two lines of OpenTSDB's `version`, with this program's name and the compiler. A static program says what it
/// lacks.
pub(crate) fn text() -> String {
    let link = if cfg!(target_feature = "crt-static") {
        "Static program, without Kerberos, whose library is loaded at run time\n"
    } else {
        ""
    };
    format!("{}{}\n{link}", build_facts().render_text(), line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_name_release_revision_and_compiler() {
        let line = line();
        let words: Vec<_> = line.split(' ').collect();
        assert!(
            matches!(words[..], ["Saltern", _, "revision", revision, _, "rustc", rustc]
                if !revision.is_empty() && rustc.starts_with("1.")),
            "{line}"
        );
    }
}
