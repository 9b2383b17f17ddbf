//! The git revision of a source tree. The build script includes this module, and tests do.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A checked-out revision.
#[derive(Debug)]
pub(crate) struct GitRevision {
    /// Its hash.
    pub(crate) revision: String,
    /// True if tracked files differ from the revision.
    pub(crate) modified: bool,
    /// Files that change with a checkout or a commit.
    pub(crate) files: Vec<PathBuf>,
}

impl GitRevision {
    /// Asks git. `None` if git is missing or refuses, or if `root` is not the top of a work tree: a tarball may have
    /// been unpacked inside another repository.
    pub(crate) fn read(root: &Path) -> Option<Self> {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.trim().to_owned())
        };
        let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
        if top.canonicalize().ok()? != root.canonicalize().ok()? {
            return None;
        }
        let revision = git(&["rev-parse", "HEAD"])?;
        let status = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"]);
        let path = |name: &str| {
            let path = root.join(git(&["rev-parse", "--git-path", name])?);
            path.exists().then_some(path)
        };
        let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
        let names = ["HEAD", "index", "packed-refs"].into_iter().chain(branch.as_deref());
        let files = names.filter_map(path).collect();
        Some(Self { revision, modified: status.is_none_or(|status| !status.is_empty()), files })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    fn git(root: &Path, arguments: &[&str]) {
        let status = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
    }

    #[test]
    fn the_revision_is_that_of_the_tree_and_of_no_repository_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(GitRevision::read(root).is_none(), "no repository");
        git(root, &["init", "--quiet"]);
        assert!(GitRevision::read(root).is_none(), "no commit");
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "1").unwrap();
        git(root, &["add", "."]);
        git(root, &["commit", "--quiet", "-m", "first"]);
        let first = GitRevision::read(root).unwrap();
        assert!(first.revision.len() >= 40 && !first.modified, "{first:?}");
        assert!(first.files.iter().any(|file| file.ends_with("HEAD")), "{first:?}");
        assert!(GitRevision::read(&root.join("sub")).is_none(), "not the top");
        fs::write(root.join("sub/file"), "2").unwrap();
        assert!(GitRevision::read(root).unwrap().modified);
        git(root, &["commit", "--quiet", "-a", "-m", "second"]);
        let second = GitRevision::read(root).unwrap();
        assert!(second.revision != first.revision && !second.modified);
    }
}
